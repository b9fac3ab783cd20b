"""One gradient on two replicas, before and after the all-reduce, and the weights after the step."""

from __future__ import annotations

from lockstep.labs.ddp.buckets import Recorded

COLUMNS = (
    "element",
    "gradient on rank 0",
    "on rank 1",
    "their mean",
    "after the all-reduce",
    "weight on rank 0",
    "on rank 1",
)
ROWS = 5


def rows(found: Recorded) -> list[list[str]]:
    """The first elements, as texts."""
    before, after, weights = (found.exchange[key] for key in ("before", "after", "weights"))
    return [
        [
            f"{found.exchange['name']}[{place}]",
            *(f"{gradient[place]:+.5f}" for gradient in before),
            f"{(before[0][place] + before[1][place]) / 2:+.5f}",
            # The same on both ranks: the sentence below says whether.
            f"{after[0][place]:+.5f}",
            *(f"{weight[place]:+.5f}" for weight in weights),
        ]
        for place in range(ROWS)
    ]


def verdict(found: Recorded) -> str:
    """Whether the ranks agree, and with the mean."""
    before, after, weights = (found.exchange[key] for key in ("before", "after", "weights"))
    worst = max(
        abs((a + b) / 2 - c) for a, b, c in zip(before[0], before[1], after[0], strict=True)
    )
    same = after[0] == after[1] and weights[0] == weights[1]
    agree = "equal to the bit" if same else "different"
    return (
        f"All {len(after[0])} elements: gradients and weights of the two ranks are {agree} after "
        f"the exchange; from the mean they differ by {worst:.1g} at most, which is rounding."
    )
