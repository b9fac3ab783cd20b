"""Watch a repeated step for what explains its gradient: compared samples, drawn numbers."""

from __future__ import annotations

import sys
from functools import wraps
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from lockstep.probes.oracle.by_rank import Joined

COMPARING: tuple[tuple[Any, tuple[str, ...]], ...] = (
    (F, ("cross_entropy", "log_softmax", "softmax")),
    (torch, ("logsumexp",)),
    (Tensor, ("logsumexp", "softmax", "log_softmax")),
)
DRAWING: tuple[tuple[Any, tuple[str, ...]], ...] = (
    (torch, ("rand", "randn", "randint", "randperm", "normal", "bernoulli", "multinomial")),
    (Tensor, ("normal_", "uniform_", "random_", "bernoulli_", "exponential_", "multinomial")),
)
_LOADING = "/torch/utils/data/"


class Watch:
    """What the step did."""

    def __init__(self, batch: Joined) -> None:
        self.batch = batch
        self.square = 0
        """How many samples of a rank a loss compares with each other; 0 if none does."""
        self.drew = False
        """Whether the step drew from a generator of the script's."""

    def install(self) -> None:
        """Patch the functions that compare or draw."""
        for functions, wrapped in ((COMPARING, self._comparing), (DRAWING, self._drawing)):
            for owner, names in functions:
                for name in names:
                    setattr(owner, name, wrapped(getattr(owner, name)))

    def _comparing(self, original: Any) -> Any:
        @wraps(original)
        def called(x: Any, *args: Any, **kwargs: Any) -> Any:
            if isinstance(x, Tensor) and x.dim() == 2 and x.shape[0] == x.shape[1]:
                parts = self.batch.parts(x.shape[0])
                if parts is not None:
                    self.square = parts[0]
            return original(x, *args, **kwargs)

        return called

    def _drawing(self, original: Any) -> Any:
        @wraps(original)
        def called(*args: Any, **kwargs: Any) -> Any:
            # Samplers draw from generators too, but before the batch comes.
            if kwargs.get("generator") is not None and self.batch.sizes:
                self.drew |= _LOADING not in sys._getframe(1).f_code.co_filename
            return original(*args, **kwargs)

        return called
