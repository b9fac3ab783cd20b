"""Measure the norms of the gradients of single shards, beside that of the whole batch.

The shards are those of the recipe, whichever replica computes them, and their squared norms are
added in one order. So the noise that follows from them is the same on any number of replicas, in
exact mode to the bit. A measurement costs one more pass over a batch, in few steps.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from lockstep.data import Arrival
from lockstep.engine.exchange.noise import described
from lockstep.engine.feed import Feed
from lockstep.engine.group import Group
from lockstep.engine.model import RecipeModel
from lockstep.engine.program.tree import Gradients
from lockstep.engine.recipe.recipe import Recipe
from lockstep.engine.sampler import Part, Step
from lockstep.engine.step.beside import gradients_beside
from lockstep.engine.step.metrics import autocast
from lockstep.engine.step.timeline import StepWatch
from lockstep.engine.step.update import Update
from lockstep.errors import RecipeError
from lockstep.scaling.batch.growth import Growth
from lockstep.scaling.noise import Moments, NoiseScale, adam_diagonal, moments
from lockstep.scaling.noise.squared_norms import gradients_of, scaled
from lockstep.scaling.optimizers.layerwise import norms

MEMORY = 16.0
"""How many measurements the average reaches back."""


class ShardNorms:
    """Measures the noise of the gradient in some steps, and lets the batch grow with it."""

    def __init__(
        self,
        growth: Growth,
        recipe: Recipe,
        group: Group,
        model: RecipeModel,
        feed: Feed,
        update: Update,
        watch: StepWatch,
    ) -> None:
        self.growth, self.recipe, self.group = growth, recipe, group
        self.model, self.feed, self.update, self.watch = model, feed, update, watch
        self.noise = NoiseScale(MEMORY)
        self.waiting: list[tuple[Tensor, Tensor, int]] = []
        """Squared norms of this replica's shards and of the whole batch, and its samples."""
        optimizer = update.optimizer
        adam = isinstance(optimizer, torch.optim.Adam | torch.optim.AdamW)
        self.diagonal = adam_diagonal(optimizer, coming=True) if adam else None

    def measure(self, step: Step, arrivals: list[Arrival]) -> None:
        """Measure a step's gradients: after the exchange, before they are clipped or used."""
        parameters = self.update.parameters
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
        # Hooks of backward have fired, for no step of the training.
        self.watch.backward_ends(False)
        length = self._squared(list(whole), list(whole.values()))
        self.waiting.append((torch.stack(own), length, step.samples))

    def _shards(self, step: Step, part: Part, arrival: Arrival) -> Iterator[Gradients]:
        """Yield the gradient of each shard's mean loss; change nothing else."""
        inputs, targets = self.feed.read(arrival)
        # The first round of each shard.
        for number, shard in enumerate(part.shards):
            place = number * part.rounds
            size, first = part.sizes[place], sum(part.sizes[:place])
            alone = Part(part.request, range(shard, shard + 1), (size,), counts=False)
            self.model.enter(step, alone)
            rows = slice(first, first + size)
            with autocast(self.recipe, self.group.device):
                losses = self.recipe.loss(self.model.module(inputs[rows]), targets[rows])
            yield gradients_beside(losses.sum() / losses.numel(), self.update.parameters)

    @torch.no_grad()
    def _squared(self, parameters: Sequence[Tensor], gradients: Sequence[Tensor | None]) -> Tensor:
        pairs = [(p, g) for p, g in zip(parameters, gradients, strict=True) if g is not None]
        values = scaled([p for p, _ in pairs], [g for _, g in pairs], self.diagonal)
        values = [torch.view_as_real(v) if v.is_complex() else v for v in values]
        kinds = dict.fromkeys(value.dtype for value in values)
        lengths = [norms([v for v in values if v.dtype == kind]).double() for kind in kinds]
        return torch.cat(lengths).square().sum()

    def moments(self) -> Moments:
        """Return the moments of the gradient so far; all replicas call this after one step."""
        if self.waiting:
            rows = self.group.rows(torch.stack([own for own, _, _ in self.waiting], 1))
            lengths = torch.stack([length for _, length, _ in self.waiting]).tolist()
            batch = self.recipe.global_batch
            for column, length, (_, _, samples) in zip(
                rows.T.tolist(), lengths, self.waiting, strict=True
            ):
                small = math.fsum(column) / len(column)
                self.noise.see(moments(small, length, batch / len(column), samples))
            self.waiting.clear()
        return self.noise.estimate().moments

    def follow(self, step: Step) -> None:
        """After a step that ends a period, decide the size of later steps."""
        if step.stride.ends_period:
            self.growth.measured.append(self.moments())

    def estimate(self) -> dict[str, Any]:
        """Return the noise scale for metrics and run.json; all replicas call this together."""
        self.moments()
        return described("shards", self.noise.estimate())

    def state(self) -> dict[str, Any]:
        """Return what a checkpoint must hold; all replicas call this together."""
        self.moments()
        # A copy: it is written while the training continues.
        return {"measured": list(self.growth.measured), "noise": self.noise.state_dict()}

    def load(self, state: dict[str, Any]) -> None:
        """Continue from a saved state."""
        self.growth.measured = [Moments(*values) for values in state["measured"]]
        self.noise.load_state_dict(state["noise"])
