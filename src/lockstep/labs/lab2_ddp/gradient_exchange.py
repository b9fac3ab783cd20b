"""One gradient on two replicas, before and after the all-reduce, and the weights after the step."""

from __future__ import annotations

from lockstep.labs.lab2_ddp.buckets import Recorded

GRADIENTS = ("gradient", "rank 0", "rank 1", "mean", "reduced")
WEIGHTS = ("weight", "rank 0", "rank 1")
ROWS = 5


def gradients(found: Recorded) -> list[list[str]]:
    """The first elements, as texts: of each rank, their mean, and what the all-reduce made."""
    before, after = found.exchange["before"], found.exchange["after"]
    return [
        [
            f"[{place}]",
            *(_number(gradient[place]) for gradient in before),
            _number((before[0][place] + before[1][place]) / 2),
            _number(after[0][place]),
        ]
        for place in range(ROWS)
    ]


def weights(found: Recorded) -> list[list[str]]:
    """The same elements of the weights, after the step."""
    return [
        [f"[{place}]", *(_number(one[place]) for one in found.exchange["weights"])]
        for place in range(ROWS)
    ]


def _number(value: float) -> str:
    return f"{value:+.5f}"


def verdict(found: Recorded) -> str:
    """Whether the ranks agree, and with the mean."""
    before, after, changed = (found.exchange[key] for key in ("before", "after", "weights"))
    worst = max(
        abs((a + b) / 2 - c) for a, b, c in zip(before[0], before[1], after[0], strict=True)
    )
    same = after[0] == after[1] and changed[0] == changed[1]
    agree = "equal to the bit" if same else "different"
    return (
        f"All {len(after[0])} elements: gradients and weights of the two ranks are {agree} after "
        f"the exchange; from the mean they differ by {worst:.1g} at most, which is rounding."
    )
