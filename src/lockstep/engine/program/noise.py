"""Measure the noise scale of a loop's gradients: the parts of a batch against the whole."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from lockstep.engine.exchange.noise import described
from lockstep.engine.group import Group
from lockstep.engine.program.tree import Gradients
from lockstep.scaling.noise import StepNoise, adam_diagonal, squared_length
from lockstep.scaling.noise.sources import Source
from lockstep.scaling.noise.squared_norms import scaled

EVERY = 16
"""Steps after which the replicas exchange the lengths that they noted."""


class ProgramNoise:
    """Compares the gradient of each part of a batch with that of the whole batch.

    A part is what goes through the loss at once. If the batch is a single part, a step is compared
    with the next. Sizes are counted in samples, also if the loss is a mean over tokens.
    """

    def __init__(
        self, group: Group, optimizer: torch.optim.Optimizer, parts: int, global_batch: int
    ) -> None:
        """Watch batches of `global_batch` samples that all replicas compute in `parts` parts."""
        self.group, self.optimizer = group, optimizer
        adam = isinstance(optimizer, torch.optim.Adam | torch.optim.AdamW)
        self.diagonal = adam_diagonal(optimizer) if adam else None
        self.global_batch = global_batch
        self.steps: StepNoise | None = None
        if parts == 1:
            every = [p for g in optimizer.param_groups for p in g["params"]]
            self.steps = StepNoise(every, global_batch, diagonal=self.diagonal)
        self.source = self.steps or Source(global_batch / parts, global_batch)
        self.own: dict[int, Tensor] = {}
        """The squared length of each part's summed gradient, by its first shard."""
        self.waiting: list[tuple[Tensor, Tensor]] = []

    @torch.no_grad()
    def part(self, shard: int, parameters: list[Tensor], gradients: Gradients) -> None:
        """Note the summed gradient of the part that begins with `shard`."""
        if self.steps is None and self._has_units():
            self.own[shard] = self._length(parameters, gradients)

    @torch.no_grad()
    def step(
        self, parameters: list[Tensor], gradients: Gradients, counts: Tensor, samples: int
    ) -> None:
        """Note the mean gradient of the batch; `counts` holds the items of all its parts."""
        own, self.own = self.own, {}
        if samples != self.global_batch or not self._has_units():
            return
        if self.steps is not None:
            for p, gradient in zip(parameters, gradients, strict=True):
                p.grad = gradient
            self.steps.step()
            return
        small = torch.zeros((), dtype=torch.float64, device=counts.device)
        for shard, length in own.items():
            small += length / counts[shard].clamp(min=1.0).square()
        small /= (counts > 0).sum().clamp(min=1)
        self.waiting.append((small, self._length(parameters, gradients)))
        if len(self.waiting) >= EVERY:
            self._exchange()

    def estimate(self) -> dict[str, Any]:
        """Return the noise scale for metrics and run.json; all replicas call this together."""
        self._exchange()
        compared = "parts of the batch" if self.steps is None else "steps"
        return described(compared, self.source.estimate())

    def _exchange(self) -> None:
        if self.waiting:
            small = self.group.sum(torch.stack([length for length, _ in self.waiting]))
            for length, (_, whole) in zip(small, self.waiting, strict=True):
                self.source.note(length, whole)
            self.waiting.clear()

    def _length(self, parameters: list[Tensor], gradients: Gradients) -> Tensor:
        pairs = [(p, g) for p, g in zip(parameters, gradients, strict=True) if g is not None]
        return squared_length(scaled([p for p, _ in pairs], [g for _, g in pairs], self.diagonal))

    def _has_units(self) -> bool:
        """Tell whether the units of the gradient are known: Adam's are from its first update on."""
        return self.diagonal is None or bool(self.optimizer.state)
