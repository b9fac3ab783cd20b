"""How long the gradients of single shards are, beside that of the whole batch.

The shards are those of the recipe, whoever computes them, and their lengths are added up in one
order: so what they tell of the noise is the same on any number of replicas, in exact mode to the
bit. It costs one more pass over a batch, in the few steps that look.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from lockstep.data import Arrival
from lockstep.engine.exchange.noise import described
from lockstep.engine.sampler import Part, Step
from lockstep.engine.step.metrics import autocast
from lockstep.errors import RecipeError
from lockstep.scaling.noise import Moments, NoiseScale, adam_diagonal, moments
from lockstep.scaling.noise.squared_norms import gradients_of, scaled
from lockstep.scaling.optimizers.layerwise import norms

if TYPE_CHECKING:
    from lockstep.engine.replica import Replica

MEMORY = 16.0
"""Looks that the average reaches back."""


class Lengths:
    """Looks at the gradients of some steps; hands on what a period told."""

    def __init__(self, replica: Replica) -> None:
        self.replica = replica
        self.noise = NoiseScale(MEMORY)
        self.waiting: list[tuple[Tensor, Tensor, int]] = []
        """Squared lengths of this replica's shards and of the whole, and its samples."""
        optimizer = replica.update.optimizer
        adam = isinstance(optimizer, torch.optim.Adam | torch.optim.AdamW)
        self.diagonal = adam_diagonal(optimizer, coming=True) if adam else None

    def look(self, step: Step, arrivals: list[Arrival]) -> None:
        """At a step's gradients: after the exchange, before they are clipped or used."""
        parameters = self.replica.update.parameters
        try:
            whole = gradients_of(parameters)
        except ValueError as error:
            raise RecipeError(f"--grow-to: {error}") from None
        pairs = zip(step.parts, arrivals, strict=True)
        own = [
            self._squared(parameters, gradients)
            for part, arrival in pairs
            if part.round == 0
            for gradients in self._shards(step, part, arrival)
        ]
        if self.replica.timeline is not None:
            # Hooks of backward have fired, for no step of the training.
            self.replica.timeline.backward_ends(False)
        length = self._squared(list(whole), list(whole.values()))
        self.waiting.append((torch.stack(own), length, step.samples))

    def _shards(self, step: Step, part: Part, arrival: Arrival) -> Iterator[Sequence[Tensor]]:
        """The gradient of each shard's mean loss; nothing else is touched."""
        replica, recipe = self.replica, self.replica.recipe
        inputs, targets = replica.loader.batch(arrival, replica.epoch)
        # Of each shard the first round.
        for number, shard in enumerate(part.shards):
            place = number * part.rounds
            size, first = part.sizes[place], sum(part.sizes[:place])
            alone = Part(part.request, range(shard, shard + 1), (size,), counts=False)
            replica.enter(step, alone)
            rows = slice(first, first + size)
            with autocast(recipe, replica.group.device):
                losses = recipe.loss(replica.module(inputs[rows]), targets[rows])
            yield torch.autograd.grad(
                losses.sum() / losses.numel(), replica.update.parameters, allow_unused=True
            )

    @torch.no_grad()
    def _squared(self, parameters: Sequence[Tensor], gradients: Sequence[Tensor | None]) -> Tensor:
        pairs = [(p, g) for p, g in zip(parameters, gradients, strict=True) if g is not None]
        values = scaled([p for p, _ in pairs], [g for _, g in pairs], self.diagonal)
        values = [torch.view_as_real(v) if v.is_complex() else v for v in values]
        kinds = dict.fromkeys(value.dtype for value in values)
        lengths = [norms([v for v in values if v.dtype == kind]).double() for kind in kinds]
        return torch.cat(lengths).square().sum()

    def told(self) -> Moments:
        """By all looks until now; all replicas ask together, after the same step."""
        if self.waiting:
            rows = self.replica.group.rows(torch.stack([own for own, _, _ in self.waiting], 1))
            lengths = torch.stack([length for _, length, _ in self.waiting]).tolist()
            batch = self.replica.recipe.global_batch
            for column, length, (_, _, samples) in zip(
                rows.T.tolist(), lengths, self.waiting, strict=True
            ):
                small = math.fsum(column) / len(column)
                self.noise.see(moments(small, length, batch / len(column), samples))
            self.waiting.clear()
        return self.noise.estimate().moments

    def estimate(self) -> dict[str, Any]:
        """For metrics and summary; all replicas ask together."""
        self.told()
        return described("shards", self.noise.estimate())
