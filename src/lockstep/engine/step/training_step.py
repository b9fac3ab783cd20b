"""One training step, as it is written: read, forward, loss, backward, exchange, update."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from lockstep.data import Arrival
from lockstep.data.batches import Batch
from lockstep.engine.recipe.recipe import raised
from lockstep.engine.replica import Replica
from lockstep.engine.sampler import Step
from lockstep.engine.step.metrics import Meter, autocast, check_classes, items_per_sample
from lockstep.errors import LockstepError, RecipeError


class Taken(NamedTuple):
    """What a step says of itself."""

    items: int
    """Losses in the global batch: one for each sample, or for each token of each."""
    rate: float


class Losses(NamedTuple):
    """What one part of a batch gave."""

    sum: Tensor
    items: int
    """Losses for each sample."""


class TrainingStep:
    """Takes one optimizer step after the other."""

    def __init__(self, replica: Replica, meter: Meter, *, compiled: bool = False) -> None:
        self.replica, self.meter, self.compiled = replica, meter, compiled
        self.read, self.forward = self._read, self._forward
        if compiled:
            self.read = torch.compile(self._read, dynamic=False)
            self.forward = torch.compile(self._forward, dynamic=False)

    def __call__(self, step: Step, arrivals: list[Arrival]) -> Taken:
        """Change the weights by one global batch."""
        rate = self.announce(step)
        return Taken(self.compute(step, arrivals), rate)

    def announce(self, step: Step) -> float:
        """Put what differs from step to step where the device reads it; the learning rate."""
        self.replica.shards.turn_to(step.stride.round)
        self.replica.epoch.turn_to(step.epoch)
        rate = self.replica.rate_of(step)
        self.replica.update.set_rate(rate)
        return rate

    def compute(self, step: Step, arrivals: list[Arrival]) -> int:
        """Everything that the device does; the number of losses."""
        replica, watch, timeline = self.replica, self.replica.watch, self.replica.timeline
        items = 0
        for number, (part, arrival) in enumerate(zip(step.parts, arrivals, strict=True)):
            replica.enter(step, part)
            inputs, targets = self._first(self.read, arrival)
            last = number + 1 == len(step.parts)
            with replica.reduce.part(number, len(step.parts)):
                losses = self._first(self.forward, inputs, targets, part.counts)
                # Of the global count, not of the replicas': the last batch may be uneven.
                items = step.samples * losses.items
                watch.mark("loss")
                replica.reduce.backward(losses.sum, items)
            if timeline:
                timeline.backward_ends(last and not replica.group.alone)
            self.meter.note(number, losses.sum, len(step.parts))
            if replica.noise is not None:
                replica.noise.part(number, items)
        if replica.noise is not None:
            replica.noise.step(whole=step.samples == replica.recipe.global_batch)
        if step.stride.looks:
            replica.lengths.look(step, arrivals)
        first = not replica.checked
        if first:
            replica.check_first_step()
        replica.update.clip()
        watch.mark("optimizer step")
        counted = replica.update.uncounted() if first else {}
        replica.update.step()
        if first:
            replica.check_first_update(counted)
        watch.mark("weight update")
        replica.update.forget_gradients()
        self.meter.turn(len(step.parts))
        return items

    def _first(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call it; what it raises in the first step is the recipe's fault, and is told as that."""
        if self.replica.checked or self.compiled:
            # A compiler fails for reasons of its own: eager steps are tried then.
            return function(*arguments)
        try:
            return function(*arguments)
        except (LockstepError, torch.OutOfMemoryError):
            raise
        except Exception as error:
            name = self.replica.recipe.name
            raise RecipeError(raised(f"the first step of {name}", error)) from error

    def _read(self, arrival: Arrival) -> Batch:
        return self.replica.loader.batch(arrival, self.replica.epoch)

    def _forward(self, inputs: Tensor, targets: Tensor, counts: bool) -> Losses:
        replica, recipe = self.replica, self.replica.recipe
        with autocast(recipe, replica.group.device):
            outputs = replica.model(inputs)
            check_classes(recipe, outputs, replica.data.train)
            replica.watch.mark("output")
            losses = recipe.loss(outputs, targets)
        items = items_per_sample(losses, len(inputs), "loss")
        return Losses(losses.sum() if counts else losses.sum() * 0.0, items)
