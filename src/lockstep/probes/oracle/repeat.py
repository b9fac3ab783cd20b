"""Repeat, on one rank, the first step that several ranks have kept, and compare the gradients.

If they differ, this rank repeats the step once more with weights that are off by a rounding. A
difference of that size is no bug. In a deep network it may be a percent.
"""

from __future__ import annotations

from collections import Counter
from functools import cached_property
from typing import Any, NoReturn
from weakref import WeakSet

import torch
import torch.distributed as dist
from torch import Tensor
from torch.optim.optimizer import Optimizer

from lockstep.probes.hooks.optimizers import parameters_of
from lockstep.probes.hooks.randomness import dropout_state, set_dropout_state
from lockstep.probes.names import MORE_BATCHES
from lockstep.probes.oracle.batches import counted, joined, mapped
from lockstep.probes.oracle.by_rank import Joined
from lockstep.probes.oracle.difference import compared
from lockstep.probes.oracle.full import FullDigits
from lockstep.probes.oracle.step import FirstStep, Given, gradients_of, read
from lockstep.probes.oracle.watch import Watch
from lockstep.probes.recorder import Batch, Recorder


class Repeater:
    """Gives the script the ranks' batches and parameters."""

    def __init__(self, recorder: Recorder, optimizers: WeakSet[Optimizer], folder: str) -> None:
        self.recorder, self.optimizers = recorder, optimizers
        self.folder = folder
        self.asked: list[FirstStep] = []
        """The ranks that the last batch came from."""
        self.joined = Joined()
        self.watch = Watch(self.joined)
        self.digits = FullDigits()
        self.first: list[Tensor | None] = []
        """The gradient of the first repetition, if a second follows."""
        self.found: dict[str, Any] = {}
        """The verdict so far."""
        self.given: Counter[str] = Counter()
        """Batches of each loader in the second repetition."""
        recorder.on_end.append(self._tell)
        self.joined.install()
        self.watch.install()

    @cached_property
    def ranks(self) -> list[FirstStep]:
        """First steps that the ranks kept, read late: the script must define its classes first."""
        try:
            return read(self.folder)
        except Exception as error:
            self._impossible(f"what the ranks kept cannot be read: {error}")

    def batch(self, data: Any, batch: Batch) -> Any:
        """Return the ranks' batches in place of the script's."""
        if self.recorder.worker:
            return data
        kept = [rank.batches.get(batch.loader, []) for rank in self.ranks]
        if not any(kept):
            return data  # the step does not use this loader
        self.digits.begin()
        given = self._given(kept, self.given[batch.loader] if self.first else batch.number)
        self.given[batch.loader] += 1
        if not self.recorder.settings.joined:
            set_dropout_state(given[0].random)
        self.joined.sizes = [one.size for one in given]
        self.joined.states = [one.random for one in given]
        self.joined.synced = any(rank.synced for rank in self.ranks)
        try:
            whole = joined([one.data for one in given], self.joined.sizes)
        except Exception as error:  # the script's types may raise anything
            self._impossible(f"the ranks' batches cannot be joined to one: {error}")
        self._set_parameters()
        return mapped(whole, Tensor.clone)

    def _given(self, kept: list[list[Given]], number: int) -> list[Given]:
        """Return a batch of each rank, or the next one if ranks take turns."""
        if self.recorder.settings.joined:
            if number >= len(kept[0]):
                self._impossible(MORE_BATCHES)
            self.asked = self.ranks
            return [batches[number] for batches in kept]
        turn, rank = divmod(number, len(kept))
        if turn >= len(kept[0]):
            self._impossible("one process takes a different number of batches for a step")
        self.asked = [self.ranks[rank]]
        return [kept[rank][turn]]

    def _set_parameters(self) -> None:
        for optimizer in self.optimizers:
            mine = parameters_of(optimizer)
            if self._are_those(mine):
                for parameter, value in zip(mine, self.ranks[0].parameters, strict=True):
                    # Through .data, which keeps the version that autograd checks.
                    parameter.data.copy_(nudged(value) if self.first else value)

    def _are_those(self, parameters: list[Tensor]) -> bool:
        """Whether these can be the parameters that the ranks trained."""
        return [p.shape for p in parameters] == [p.shape for p in self.ranks[0].parameters]

    def step(self, optimizer: Any) -> None:
        """Compare at the first step and, if the gradients differ, at the next."""
        if dist.is_initialized() and dist.get_world_size() > 1:
            self._impossible("the script starts several ranks by itself also when it is given one")
        mine, kept = parameters_of(optimizer), self.ranks[0]
        if not self._are_those(mine):
            if self.first:
                return  # this is another optimizer
            self._impossible("on one rank the script trains other parameters")
        if not self.asked:
            self._impossible("on one rank the script takes its batches from other loaders")
        gradients = gradients_of(mine)
        if self.first:
            again = compared(kept.names, kept.gradients, self.first, kept.autocast, gradients)
            self._end(**self.found | again)
        facts = compared(kept.names, kept.gradients, gradients, kept.autocast)
        if facts["verdict"] == "differs" and not self._faithful():
            self._impossible("the step draws random numbers other than dropout's")
        self.found = facts | {
            "by_rank": sorted(self.joined.used),
            "square": self.watch.square,
            "counted": [
                counted([given.data for batches in rank.batches.values() for given in batches])
                for rank in self.ranks
            ],
        }
        if facts["verdict"] == "agrees":
            self._end(**self.found)
        self.first = gradients
        self.given.clear()

    def _faithful(self) -> bool:
        """Whether the step drew the random numbers of the ranks."""
        if self.watch.drew or any(rank.drew for rank in self.ranks):
            return False
        states = self.joined.states if self.recorder.settings.joined else [dropout_state()]
        drawn = [rank.random for rank in self.asked]
        return all(map(torch.equal, states, drawn))

    def _impossible(self, why: str) -> NoReturn:
        # The verdict of the first repetition stands if the second fails.
        self._end(**self.found or {"verdict": "impossible", "why": why})

    def _end(self, **facts: Any) -> NoReturn:
        self.found = facts
        self.recorder.stop("oracle")

    def _tell(self) -> None:
        if self.found:
            self.recorder.note("oracle", **self.found)
            self.found = {}


def nudged(value: Tensor) -> Tensor:
    """Return the tensor with each number off by about a rounding."""
    if not value.is_floating_point():
        return value
    draw = torch.Generator().manual_seed(0)
    noise = torch.randn(value.shape, generator=draw)
    return value * (1.0 + torch.finfo(value.dtype).eps * noise.to(value.dtype))
