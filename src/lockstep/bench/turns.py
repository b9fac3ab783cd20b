"""Let sides take turns without restarting them: this module runs in the processes of a side.

A side reports every step to its `Pace`. After the last step of a turn, the pace sends the time to
the bench and blocks until the side's next turn, so a resting side uses no processor.
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
    """An order from the bench to a side: train for some steps."""

    lead: int
    """Untimed steps at the start: after a rest, caches and allocator are cold."""
    steps: int
    """Timed steps."""
    frees: bool
    """Whether to free unused device memory afterwards: the other sides need it."""


class Report(NamedTuple):
    """The answer of one replica after a turn."""

    seconds: float
    samples: int
    """Samples of this replica in the timed steps."""
    parameters: int
    peak_memory_bytes: int
    path: str = ""
    """How the side executes its steps, if it has a choice."""


FIRST = Turn(lead=0, steps=1, frees=False)
"""The turn that every side takes without an order: its only step ends the set-up."""


class Pace(Protocol):
    """Counts the steps of a side."""

    facts: Callable[[], tuple[int, str]] | None = None
    """Returns peak memory in bytes and path, for a side that knows better than the allocator."""

    def begin(self, model: nn.Module) -> None:
        """Take note of the model before its training."""

    def step(self, samples: int) -> None:
        """Count one step of this replica on that number of `samples`."""


class Piped(Pace):
    """The pace of a side in a bench: it gets turns through a pipe and sends reports back."""

    def __init__(self, pipe: Connection, device: torch.device) -> None:
        self.pipe, self.device = pipe, device
        self.parameters = 0
        self._start(FIRST)

    def begin(self, model: nn.Module) -> None:
        """Count the parameters."""
        self.parameters = sum(p.numel() for p in model.parameters())

    def step(self, samples: int) -> None:
        """Count a step; start the clock after the lead, and rest after the turn."""
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
        peak, path = self.facts() if self.facts else (peak_memory(self.device), "")
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
    """Return the largest number of bytes allocated on a GPU, or resident on the CPU."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


class Enough(BaseException):
    """Ends a side that has done its `Few` steps; not an Exception, so no library catches it."""


class Few(Pace):
    """The pace of a side outside a bench: it raises `Enough` after a few steps."""

    def __init__(self, steps: int) -> None:
        self.left, self.samples = steps, 0
        self.model: nn.Module | None = None

    def begin(self, model: nn.Module) -> None:
        """Keep the model for the caller."""
        self.model = model

    def step(self, samples: int) -> None:
        """Count down."""
        self.samples += samples
        self.left -= 1
        if self.left == 0:
            raise Enough
