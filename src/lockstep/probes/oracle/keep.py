"""Keep the first step of a rank."""

from __future__ import annotations

from typing import Any
from weakref import WeakSet

import torch
from torch import Tensor, nn
from torch.optim.optimizer import Optimizer

from lockstep.probes.hooks import ddp
from lockstep.probes.hooks.optimizers import parameters_of
from lockstep.probes.hooks.randomness import dropout_state, states
from lockstep.probes.oracle.batches import mapped, tensors
from lockstep.probes.oracle.full import FullDigits
from lockstep.probes.oracle.step import FirstStep, Given, gradients_of
from lockstep.probes.patching import replaces
from lockstep.probes.recorder import Batch, Recorder

MOST_BYTES = 2_000_000_000
"""How much a rank keeps. The oracle does not judge a step that needs more."""


class Keeper:
    """Keeps the first step of one rank."""

    def __init__(self, recorder: Recorder, optimizers: WeakSet[Optimizer]) -> None:
        self.recorder, self.optimizers = recorder, optimizers
        self.batches: dict[str, list[Given]] = {}
        self.parameters: dict[int, list[Tensor]] = {}
        """Parameters of each optimizer before the first backward pass, by its identity."""
        self.autocast: set[torch.dtype] = set()
        self.synced = False

        @replaces("forward", nn.SyncBatchNorm)
        def synced(forward: Any, layer: Any, x: Tensor) -> Tensor:
            self.synced = True
            return forward(layer, x)

        self.others: dict[str, int] = {}
        """States of generators other than torch's when the last batch came."""
        self.bytes_left, self.over = MOST_BYTES, False
        self.digits = FullDigits()

    def batch(self, data: Any, batch: Batch) -> Any:
        """Keep a copy of a batch."""
        if self.over or self.recorder.worker:
            return data
        self.digits.begin()
        kept = self.batches.setdefault(batch.loader, [])
        if batch.number == 0:
            self.bytes_left += sum(_bytes(tensors(given.data)) for given in kept)
            kept.clear()
        try:
            if self._fits(tensors(data), "a batch"):
                copy = mapped(data, lambda t: t.detach().clone())
                kept.append(Given(copy, batch.size, dropout_state()))
                self.others = _others()
        except Exception as error:  # the script's types may raise anything
            self._give_up(f"its batches cannot be kept: {error}")
        return data

    def backward(self) -> None:
        """Keep the parameters at the first backward pass, as the forward pass saw them."""
        if self.over or self.parameters:
            return
        before = {id(o): parameters_of(o) for o in self.optimizers}
        if self._fits([p for mine in before.values() for p in mine], "the model"):
            self.parameters = {o: [p.detach().clone() for p in mine] for o, mine in before.items()}

    def step(self, optimizer: Any) -> None:
        """Write the first step."""
        if self.over or self.recorder.rank is None:
            return
        mine, before = parameters_of(optimizer), self.parameters.get(id(optimizer))
        if any(type(p) not in (Tensor, nn.Parameter) for p in mine):
            self._give_up("each rank has a piece of the parameters only")
        elif before is None or not self.batches:
            self._give_up("the batches of the first step do not come from a DataLoader")
        else:
            known = ddp.names()
            kept = FirstStep(
                batches=self.batches,
                parameters=before,
                gradients=gradients_of(mine),
                names=[known.get(id(p), f"parameter {n}") for n, p in enumerate(mine)],
                random=dropout_state(),
                drew=self.others != _others(),
                autocast=self.autocast,
                synced=self.synced,
            )
            try:
                kept.write(self.recorder.settings.folder, self.recorder.rank)
            except Exception as error:  # usually a class defined inside a function
                self._give_up(f"its batches cannot be kept: {error}")
            self._end()

    def cast(self, context: torch.autocast) -> None:
        """Keep the type that autocast casts to, usually around a forward pass."""
        # With fake_cuda nothing is cast.
        real = context.device == "cpu" or self.recorder.settings.gpus is None
        if context._enabled and real and torch.is_grad_enabled() and context.fast_dtype:
            self.autocast.add(context.fast_dtype)

    def _fits(self, more: list[Tensor], what: str) -> bool:
        self.bytes_left -= _bytes(more)
        if self.bytes_left < 0:
            self._give_up(f"{what} is too large to be kept")
        return self.bytes_left >= 0

    def _give_up(self, why: str) -> None:
        self.recorder.note("oracle", verdict="impossible", why=why)
        self._end()

    def _end(self) -> None:
        self.over, self.batches, self.parameters = True, {}, {}
        self.digits.end()


def _bytes(kept: list[Tensor]) -> int:
    return sum(tensor.nbytes for tensor in kept)


def _others() -> dict[str, int]:
    """Return the states of generators other than torch's."""
    return {name: number for name, number in states().items() if name != "torch"}
