"""Watch a repeated step for what explains its gradient: compared samples, drawn numbers."""

from __future__ import annotations

import sys
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from lockstep.probes.oracle.by_rank import Joined
from lockstep.probes.patching import calling, swap

_LOADING = "/torch/utils/data/"


class Watch:
    """A record of what the watched step did."""

    def __init__(self, batch: Joined) -> None:
        self.batch = batch
        self.square = 0
        """How many samples of a rank a loss compares with each other; 0 if none does."""
        self.drew = False
        """Whether the step drew from a generator of the script's."""

    def install(self) -> None:
        """Patch the functions that compare or draw."""
        compare, draw = calling(self._compare), calling(self._draw)
        swap("cross_entropy log_softmax softmax", compare, F)
        swap("logsumexp", compare, torch)
        swap("logsumexp softmax log_softmax", compare, Tensor)
        swap("rand randn randint randperm normal bernoulli multinomial", draw, torch)
        swap("normal_ uniform_ random_ bernoulli_ exponential_ multinomial", draw, Tensor)

    def _compare(self, original: Any, x: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(x, Tensor) and x.dim() == 2 and x.shape[0] == x.shape[1]:
            parts = self.batch.parts(x.shape[0])
            if parts is not None:
                self.square = parts[0]
        return original(x, *args, **kwargs)

    def _draw(self, original: Any, *args: Any, **kwargs: Any) -> Any:
        # Samplers draw from generators too, but before the batch comes.
        if kwargs.get("generator") is not None and self.batch.sizes:
            self.drew |= _LOADING not in sys._getframe(2).f_code.co_filename
        return original(*args, **kwargs)
