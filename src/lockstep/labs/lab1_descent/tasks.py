"""The tasks of lab 1, and messages for the usual mistakes."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lockstep.labs.shared.task import read_task

Names = dict[str, Any]


def check_convergence(names: Names) -> list[str]:
    """Return what is wrong with `converged(losses)`."""
    given = names.get("converged")
    if not callable(given):
        return ["There is no function called converged."]
    if _asks(given, [5.0]) is not False or _asks(given, []) is not False:
        return ["With fewer than two losses there is nothing to compare: return False."]
    wrong = [
        text
        for losses, right, text in (
            (
                [0.001, 0.0005],
                False,
                "From 0.001 to 0.0005 the loss halves, but yours returns True: "
                "divide the change by the previous loss.",
            ),
            (
                [1000.0, 999.5],
                True,
                "From 1000 to 999.5 the loss changes by 0.05%, but yours returns False: "
                "compare the change with the previous loss.",
            ),
            (
                [1000.0, 998.0],
                False,
                "From 1000 to 998 the loss changes by 0.2%, but yours returns True: 0.1% is 0.001.",
            ),
            (
                [1.0, 5.0],
                False,
                "From 1 to 5 the loss rises, but yours returns True: "
                "use the size of the change without its sign.",
            ),
            ([9.0, 9.0, 4.0], False, "Yours looks at more than the last two losses."),
            ([9.0, 4.0, 4.0], True, "Yours does not compare the last two losses."),
            ([0.0, 0.0], True, "A loss of 0 that stays 0 has converged."),
            ([1.0, math.nan], False, "A loss that is not a number (nan) has not converged."),
        )
        if _asks(given, losses) is not right
    ]
    if not wrong and not isinstance(given([1.0, 1.0]), bool):
        wrong.append("It should return True or False.")
    return wrong


def check_batches(names: Names) -> list[str]:
    """Return what is wrong with `batches(order, size)`."""
    given = names.get("batches")
    if not callable(given):
        return ["There is no function called batches."]
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
            f"Of 10 samples in batches of 4, yours makes {len(flat)}: some appear twice. "
            "The last batch holds only the remaining samples."
        ]
    if sorted(flat) != sorted(order):
        lost = sorted(set(order) - set(flat))
        return [f"10 samples in batches of 4: samples {lost} are in no batch."]
    if flat != order:
        return ["The batches should follow the given order: it is already shuffled."]
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


def _asks(given: Callable[..., Any], losses: list[float]) -> bool | None:
    result = given(list(losses))
    return None if result is None else bool(result)


_TEXTS = Path(__file__).with_name("tasks.md")
CONVERGENCE = read_task(_TEXTS, "convergence", f"{__name__}:check_convergence")
BATCHES = read_task(_TEXTS, "batches", f"{__name__}:check_batches")
