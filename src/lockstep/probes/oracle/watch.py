"""What a repeated step does that explains its gradient: it compares samples, or draws numbers."""

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
    """What was seen."""

    def __init__(self, batch: Joined) -> None:
        self.batch = batch
        self.square = 0
        """Samples of a rank that a loss compares with each other, if one does."""
        self.drew = False
        """Whether numbers were drawn from a generator of the script's own."""

    def install(self) -> None:
        """Watch from now on."""
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
            # Samplers have generators too: theirs are drawn from before the batch is there.
            if kwargs.get("generator") is not None and self.batch.sizes:
                self.drew |= _LOADING not in sys._getframe(1).f_code.co_filename
            return original(*args, **kwargs)

        return called
