"""Recount the accuracy of saved weights in the grader's own model."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from lockstep.assess.dealt_data import Samples
from lockstep.assess.exam import Exam
from lockstep.assess.witness import weight_sum

PREFIX = "module."
MOST_BYTES = 1 << 30
CLOSE = {False: 1e-4, True: 1e-2}
"""Relative difference of scores that rounding may bridge, by whether it runs on GPUs."""


@dataclass(frozen=True, kw_only=True)
class Recount:
    """The grader's findings in a file of weights."""

    problem: str = ""
    """Why the file cannot be used, or differs from what the task requires."""
    right: Tensor | None = None
    """Whether each test sample is right; None if the weights do not fit the model."""
    unsure: int = 0
    """The number of samples whose two best scores differ only by rounding."""
    sum: int = 0
    """A checksum of the bits of the parameters."""

    @property
    def count(self) -> int:
        """The number of right answers."""
        return 0 if self.right is None else int(self.right.sum())

    @property
    def accuracy(self) -> float:
        """The share of right answers."""
        return 0.0 if self.right is None else self.count / len(self.right)

    def allows(self, printed: str) -> bool:
        """Return whether a printed number is this accuracy, up to the unsure samples."""
        if self.right is None:
            return False
        counts = range(self.count - self.unsure, self.count + self.unsure + 1)
        return printed in {f"{count / len(self.right):.4f}" for count in counts}


def build(exam: Exam) -> nn.Module:
    """Build the exam's model from the grader's own source."""
    names: dict[str, Any] = {"__name__": "model"}
    exec(compile(exam.model, "model.py", "exec"), names)
    model: nn.Module = names["build_model"]()
    return model


def recount(path: Path, exam: Exam, samples: Samples, *, on_gpus: bool = False) -> Recount:
    """Load weights into the grader's model, and evaluate it on all test samples."""
    try:
        if path.stat().st_size > MOST_BYTES:
            return Recount(problem=f"{path.name} is too large for a model of this task")
        state = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # a damaged file can raise almost anything
        return Recount(problem=f"{path.name} cannot be loaded: {_first_line(error)}")
    if not isinstance(state, dict) or not all(isinstance(v, Tensor) for v in state.values()):
        return Recount(problem=f"{path.name} does not hold a model's state_dict")
    problem = ""
    if state and all(name.startswith(PREFIX) for name in state):
        problem = (
            f"{path.name} was saved from the wrapper: its names begin with '{PREFIX}', so the "
            "model of build_model() cannot load them. Save model.module.state_dict()"
        )
        state = {name.removeprefix(PREFIX): value for name, value in state.items()}
    model = build(exam)
    try:
        model.load_state_dict(state)
    except (RuntimeError, TypeError) as error:
        return Recount(problem=f"{path.name} does not fit the given model: {_first_line(error)}")
    scores = _scores(model, samples.normal_test_images, on_gpus)
    best = scores.topk(2).values
    close = best[:, 0] - best[:, 1] <= CLOSE[on_gpus] * scores.abs().amax(1).clamp_min(1e-6)
    if not bool(torch.isfinite(scores).all()):
        close[:] = False
    return Recount(
        problem=problem,
        right=scores.argmax(1) == samples.test_labels,
        unsure=int(close.sum()),
        sum=int(weight_sum(list(model.parameters()))),
    )


def _scores(model: nn.Module, images: Tensor, on_gpus: bool) -> Tensor:
    device = torch.device("cuda" if on_gpus else "cpu")
    model.to(device).eval()
    with torch.no_grad():
        parts = [model(part.to(device)).float().cpu() for part in images.split(512)]
    model.cpu()
    return torch.cat(parts)


def _first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    # The first line of torch's message names the class only; the second gives the reason.
    return " ".join(lines[:2])[:200] or type(error).__name__
