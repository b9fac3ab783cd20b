"""The labs, in the order in which they are meant to be done."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from lockstep.errors import UsageError

NOTEBOOKS = Path(__file__).parent / "notebooks"


@dataclass(frozen=True, kw_only=True)
class Lab:
    """One page of the workshop."""

    number: int
    title: str
    question: str
    tasks: tuple[str, ...]
    """Names of what the learner has to fill in."""

    @property
    def notebook(self) -> Path:
        """A marimo notebook, which is a plain Python file."""
        return NOTEBOOKS / f"lab{self.number}.py"


LABS = (
    Lab(
        number=0,
        title="Why many GPUs",
        question="What does a model need, and what do several GPUs give?",
        tasks=("needed",),
    ),
    Lab(
        number=1,
        title="Gradient descent, SGD and batch size",
        question="How large a batch makes training fast, in images and in time to accuracy?",
        tasks=("convergence", "batches"),
    ),
    Lab(
        number=2,
        title="Distributed data parallel",
        question="How does a program for one GPU become one for many, with the same result?",
        tasks=("program",),
    ),
    Lab(
        number=3,
        title="Training at scale",
        question="How is the accuracy of one GPU retained when the batch grows?",
        tasks=("rate_at",),
    ),
)


def lab(number: int) -> Lab:
    """The lab with this number."""
    for one in LABS:
        if one.number == number:
            return one
    raise UsageError(
        f"there is no lab {number}. There are: {', '.join(str(o.number) for o in LABS)}."
    )
