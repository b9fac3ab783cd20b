"""Note where training draws random numbers, from which library, and how many at once."""

from __future__ import annotations

import random
import sys
from functools import wraps
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lockstep.probes.recorder import Recorder, is_ours
from lockstep.probes.spans import Span, script_frame, self_of, span_of

_DRAWS = {
    "random": (random, "random uniform randint randrange choice choices shuffle sample gauss "
               "normalvariate betavariate triangular expovariate getrandbits"),
    "numpy": (np.random, "rand randn randint random random_sample normal uniform choice beta "
              "binomial shuffle permutation standard_normal exponential poisson gamma dirichlet "
              "multinomial laplace"),
    "torch": (torch, "rand randn randint rand_like randn_like randint_like randperm normal "
              "bernoulli multinomial poisson"),
}  # fmt: skip
_IN_PLACE = "normal_ uniform_ random_ bernoulli_ exponential_"


class Draws:
    """Where training draws random numbers, of which library, and how many at once."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self.fetching = False
        self.begun = False
        """Whether the training has made a step, or gone backward."""
        self.drawn: dict[tuple[str, Span, bool], dict[str, Any]] = {}
        self.size = 0
        recorder.on_batch.append(self._batch)
        recorder.on_end.append(self._note)
        for library, (home, names) in _DRAWS.items():
            for name in names.split():
                if hasattr(home, name):
                    setattr(home, name, self._watched(library, getattr(home, name)))
        for name in _IN_PLACE.split():
            setattr(Tensor, name, self._watched("torch", getattr(Tensor, name)))

    def _batch(self, data: Any, batch: Any) -> Any:
        self._count()
        self.size = batch.size
        return data

    def _count(self) -> None:
        """Note where as many numbers were drawn, one by one, as the batch has samples."""
        for site in self.drawn.values():
            site["each"] = site["each"] or (site["now"] == self.size > 1)
            site["now"] = 0

    def _watched(self, library: str, original: Any) -> Any:
        @wraps(original)
        def drew(*args: Any, **kwargs: Any) -> Any:
            found = original(*args, **kwargs)
            # All processes make the script's own generators alike.
            if not self.recorder.worker and kwargs.get("generator") is None:
                self._drew(library, found)
            return found

        return drew

    def _drew(self, library: str, found: Any) -> None:
        frame = script_frame()
        if frame is None or _loads():
            return
        fetching, direct = _fetches(), _is_drawn_here(frame)
        if not (direct or fetching):
            return
        key = library, span_of(frame), fetching
        site = self.drawn.setdefault(key, {
            "library": library, "span": key[1], "fetching": fetching, "times": 0,
            "shape": list(getattr(found, "shape", ())), "batch": self.size, "late": 0,
            "now": 0, "each": False,
            "in_stream": fetching and _passes_through("_IterableDatasetFetcher"),
        })  # fmt: skip
        site["times"] += 1
        site["now"] += 1
        site["late"] += self.recorder.step > 0 and torch.is_grad_enabled()
        if self.size in getattr(found, "shape", ()):
            site["shape"], site["batch"] = list(found.shape), self.size

    def _note(self) -> None:
        self._count()
        for site in self.drawn.values():
            self.recorder.note("draws", **site)
        self.drawn = {}


def _fetches() -> bool:
    """Return whether a data set is making a sample."""
    return _passes_through("/torch/utils/data/dataloader.py")


def _loads() -> bool:
    """Return whether a DataLoader draws for itself."""
    frame: Any = sys._getframe(3)
    while frame is not None and is_ours(frame.f_code.co_filename):
        frame = frame.f_back
    return frame is not None and "/torch/utils/data/" in frame.f_code.co_filename


def _passes_through(part: str) -> bool:
    frame: Any = sys._getframe(3)
    while frame is not None:
        if frame.f_code.co_filename.endswith(part) or type(self_of(frame)).__name__ == part:
            return True
        frame = frame.f_back
    return False


def _is_drawn_here(frame: Any) -> bool:
    """Return whether a line of the script draws itself, or through torch.distributions."""
    below: Any = sys._getframe(3)
    while below is not None and below is not frame:
        path = below.f_code.co_filename
        if not is_ours(path) and "/torch/distributions/" not in path:
            return False
        below = below.f_back
    return True
