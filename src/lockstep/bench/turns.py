"""Sides take turns without being started anew: this half lives in the process of a side.

A side tells its `Pace` of every step. When the steps of a turn are done, the pace reports how long
they took and blocks until the side's next turn: a resting side uses no processor.
"""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import NamedTuple, Protocol

import torch
from torch import nn


class Turn(NamedTuple):
    """What a side is told to do."""

    lead: int
    """Steps before the clock starts: after a rest, caches and allocator are cold."""
    steps: int
    """Steps that are timed."""
    frees: bool
    """Whether to give back unused device memory afterwards: the other sides need it."""


class Report(NamedTuple):
    """What one replica of a side says after its turn."""

    seconds: float
    samples: int
    """Samples that this replica has trained on in the timed steps."""
    parameters: int
    peak_memory_bytes: int
    path: str = ""
    """How the steps are executed, if the side has a choice."""


FIRST = Turn(lead=0, steps=1, frees=False)
"""The turn nobody has to ask for: its only step ends the set-up."""


class Pace(Protocol):
    """Told what a side does."""

    told: Callable[[], tuple[int, str]] | None
    """Peak memory in bytes and path, of a side that knows better than the allocator."""

    def begin(self, model: nn.Module) -> None:
        """The model is built; it has not been trained yet."""

    def step(self, samples: int) -> None:
        """This replica has done one step, on so many samples."""


class Piped:
    """The pace of a side in a bench: turns come through a pipe, reports go back."""

    def __init__(self, pipe: Connection, device: torch.device) -> None:
        self.pipe, self.device = pipe, device
        self.parameters = 0
        self.told: Callable[[], tuple[int, str]] | None = None
        self._start(FIRST)

    def begin(self, model: nn.Module) -> None:
        """Count the parameters."""
        self.parameters = sum(p.numel() for p in model.parameters())

    def step(self, samples: int) -> None:
        """Count; where the lead or the turn ends, do what has to be done."""
        self.done += 1
        self.samples += samples
        if self.done == self.next:
            self._lead_is_over() if self.next == self.turn.lead else self._rest()

    def _start(self, turn: Turn) -> None:
        self.turn, self.next = turn, turn.lead or turn.steps
        self.done = self.samples = 0
        self.since = time.perf_counter()

    def _lead_is_over(self) -> None:
        self._wait_for_device()
        self.next += self.turn.steps
        self.samples = 0
        self.since = time.perf_counter()

    def _rest(self) -> None:
        self._wait_for_device()
        seconds = time.perf_counter() - self.since
        if self.turn.frees and self.device.type == "cuda":
            torch.cuda.empty_cache()
        peak, path = self.told() if self.told else (peak_memory(self.device), "")
        self.pipe.send(Report(seconds, self.samples, self.parameters, peak, path))
        try:
            turn = self.pipe.recv()
        except EOFError:
            os._exit(1)  # the bench is gone
        self._start(turn)

    def _wait_for_device(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)


def peak_memory(device: torch.device) -> int:
    """Bytes: the most that was allocated on a GPU, the most that was resident on the CPU."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


class Enough(BaseException):
    """Ends a side that has done its `Few` steps; no library takes it for an error of its own."""


class Few:
    """The pace of a side outside a bench: a few steps, then it ends with `Enough`."""

    def __init__(self, steps: int) -> None:
        self.left, self.samples = steps, 0
        self.told: Callable[[], tuple[int, str]] | None = None
        self.model: nn.Module | None = None

    def begin(self, model: nn.Module) -> None:
        """Keep the model for whoever wants to look at it."""
        self.model = model

    def step(self, samples: int) -> None:
        """Count down."""
        self.samples += samples
        self.left -= 1
        if self.left == 0:
            raise Enough
