"""What lab 1 asks the learner to write, and what is wrong with most first attempts."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from lockstep.labs.shared.task import Task, by

Names = dict[str, Any]


def check_convergence(names: Names) -> list[str]:
    """What is wrong with `converged(losses)`."""
    given = _function(names, "converged")
    if isinstance(given, list):
        return given
    if _asks(given, [5.0]) is not False or _asks(given, []) is not False:
        return ["With fewer than two losses there is nothing to compare: return False."]
    wrong = [
        text
        for losses, right, text in (
            (
                [0.001, 0.0005],
                False,
                "From 0.001 to 0.0005 the loss halves, and yours says converged: "
                "divide the change by the loss before.",
            ),
            (
                [1000.0, 999.5],
                True,
                "From 1000 to 999.5 it changes by 0.05%, and yours says not converged: "
                "compare the change to the loss before.",
            ),
            (
                [1000.0, 998.0],
                False,
                "From 1000 to 998 it changes by 0.2%, and yours says converged: 0.1% is 0.001.",
            ),
            (
                [1.0, 5.0],
                False,
                "From 1 to 5 the loss rises, and yours says converged: "
                "take the size of the change, without its sign.",
            ),
            ([9.0, 9.0, 4.0], False, "Yours looks at more than the last two losses."),
            ([9.0, 4.0, 4.0], True, "Yours looks at other losses than the last two."),
            ([0.0, 0.0], True, "A loss of 0 that stays 0 has converged."),
            ([1.0, math.nan], False, "A loss that is no number (nan) has not converged."),
        )
        if _asks(given, losses) is not right
    ]
    if not wrong and not isinstance(given([1.0, 1.0]), bool):
        wrong.append("It should return True or False.")
    return wrong


def check_batches(names: Names) -> list[str]:
    """What is wrong with `batches(order, size)`."""
    given = _function(names, "batches")
    if isinstance(given, list):
        return given
    order = [7, 2, 9, 4, 0, 5, 1, 8, 6, 3]
    found = given(list(order), 4)
    if found is None:
        return ["It returns nothing: return a list of lists."]
    found = [list(one) for one in found]
    flat = [one for batch in found for one in batch]
    if flat == order[:8]:
        return ["Of 10 samples in batches of 4, yours drops the last two: they are a batch too."]
    if len(flat) > len(order):
        return [
            f"Of 10 samples in batches of 4, yours makes {len(flat)}: some come twice. "
            "The last batch has only what is left."
        ]
    if sorted(flat) != sorted(order):
        lost = sorted(set(order) - set(flat))
        return [f"10 samples in batches of 4: samples {lost} are in no batch."]
    if flat != order:
        return ["The batches should follow the order that was given: it was shuffled already."]
    sizes = [len(one) for one in found]
    if sizes != [4, 4, 2]:
        return [f"10 samples in batches of 4 should be batches of 4, 4 and 2; yours are {sizes}."]
    wrong = []
    for size in (1, 5, 10, 25):
        sizes = [len(one) for one in given(list(order), size)]
        right = [len(order[at : at + size]) for at in range(0, len(order), size)]
        if sizes != right:
            wrong.append(f"In batches of {size} they should be {right}; yours are {sizes}.")
    return wrong


def _function(names: Names, name: str) -> Callable[..., Any] | list[str]:
    given = names.get(name)
    if not callable(given):
        return [f"There is no function called {name}."]
    return given


def _asks(given: Callable[..., Any], losses: list[float]) -> bool | None:
    result = given(list(losses))
    return None if result is None else bool(result)


CONVERGENCE = Task(
    name="convergence",
    asks="""### Task 1: when to stop

Write `converged(losses)`: True when the loss of the last epoch differs from the one before by
less than 0.1 % of that one. `losses` is a list, one number per epoch so far.""",
    starter='''def converged(losses):
    """Whether the loss has stopped changing."""
    return False
''',
    answer='''def converged(losses):
    """Whether the loss has stopped changing."""
    if len(losses) < 2:
        return False
    before, now = losses[-2:]
    return abs(now - before) <= 0.001 * before
''',
    explains="""The change is measured against the loss itself: an absolute limit would stop a
large loss never and a small one too early. At batch 1 the loss jumps about, so this test fires by
chance or never: stochastic runs are stopped by a number of epochs, or when a validation metric
has not improved for a while (*patience*).""",
    judge=by("lockstep.labs.lab1_descent.tasks:check_convergence"),
)

BATCHES = Task(
    name="batches",
    asks="""### Task 2: mini-batches with a ragged end

Write `batches(order, size)`: the samples of `order`, a list, cut into batches of `size`; the last
one is smaller where they do not divide. Every sample once, none lost.""",
    starter='''def batches(order, size):
    """The samples cut into batches."""
    count = len(order) // size
    return [order[i * size : (i + 1) * size] for i in range(count)]
''',
    answer='''def batches(order, size):
    """The samples cut into batches."""
    return [order[at : at + size] for at in range(0, len(order), size)]
''',
    explains="""The starter drops what is left over. With 100 samples and batches of 32 these are
4 samples in every epoch; with a validation set it is an accuracy over other samples than you
think. On several GPUs the same mistake comes back as `drop_last`, and as padding with copies.""",
    judge=by("lockstep.labs.lab1_descent.tasks:check_batches"),
)
