"""Show one gradient on two replicas around the all-reduce, and the weights after the step."""

from __future__ import annotations

from lockstep.labs.lab2_ddp.buckets import Recorded

GRADIENTS = ("gradient", "rank 0", "rank 1", "mean", "reduced")
WEIGHTS = ("weight", "rank 0", "rank 1")
ROWS = 5


def gradients(found: Recorded) -> list[list[str]]:
    """Return the first elements as text: of each rank, their mean, and the reduced ones."""
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
    """Return the same elements of the weights after the step, as text."""
    return [
        [f"[{place}]", *(_number(one[place]) for one in found.exchange["weights"])]
        for place in range(ROWS)
    ]


def _number(value: float) -> str:
    return f"{value:+.5f}"


def verdict(found: Recorded) -> str:
    """Describe whether the ranks agree with each other and with the mean."""
    before, after, changed = (found.exchange[key] for key in ("before", "after", "weights"))
    worst = max(
        abs((a + b) / 2 - c) for a, b, c in zip(before[0], before[1], after[0], strict=True)
    )
    same = after[0] == after[1] and changed[0] == changed[1]
    agree = "equal to the bit" if same else "different"
    return (
        f"All {len(after[0])} elements: gradients and weights of the two ranks are {agree} after "
        f"the exchange. They differ from the mean by at most {worst:.1g}, which is rounding."
    )
