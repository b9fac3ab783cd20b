"""One training step as it is written: read, forward, loss, backward, exchange, update."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from lockstep.data import Arrival
from lockstep.data.batches import Batch
from lockstep.engine.replica import Replica
from lockstep.engine.sampler import Step
from lockstep.engine.step.metrics import (
    UNEVEN,
    Meter,
    autocast,
    check_scores,
    items_per_sample,
    scores_needed,
)
from lockstep.engine.step.second_division import SecondDivision
from lockstep.errors import LockstepError, RecipeError, raised


class Taken(NamedTuple):
    """The results of a step that the record needs."""

    items: int
    """Losses in the global batch: one for each sample, or for each token of each sample."""
    rate: float
    """The learning rate."""


class Losses(NamedTuple):
    """The losses of one part of a batch."""

    sum: Tensor
    items: int
    """Losses for each sample."""


HASHED = 1 << 16
"""The most elements of the parameter whose gradient is hashed in each step, in exact mode."""


def hashed(parameters: Sequence[Tensor]) -> Tensor:
    """Return the parameter by which steps are compared: what differs in one is in all of them."""
    few = [p for p in parameters if p.numel() <= HASHED]
    return max(few, key=Tensor.numel) if few else min(parameters, key=Tensor.numel)


class TrainingStep:
    """Takes one optimizer step after the other."""

    def __init__(self, replica: Replica, meter: Meter, *, compiled: bool = False) -> None:
        self.recipe, self.device, self.alone = replica.recipe, replica.device, replica.alone
        self.model, self.feed, self.update = replica.model, replica.feed, replica.update
        self.ddp, self.reduce, _, _ = replica.exchange
        self.noise, self.shard_norms = replica.noise, replica.shard_norms
        self.watch, self.first, self.meter = replica.watch, replica.first_step, meter
        self.divide_again, self.buffers = SecondDivision(replica), replica.buffers
        self.lone = replica.lone_shards
        self.scores_needed = scores_needed(self.recipe, self.feed.classes)
        self.compiled, self.details = compiled, replica.details
        self.hashed = hashed(self.update.parameters) if self.first.exact else None
        self.read: Callable[[Arrival], Batch] = self.feed.read
        self.forward: Callable[[Tensor, Tensor, bool], Losses] = self._forward
        if compiled:
            self.read = torch.compile(self.feed.read, dynamic=False)
            self.forward = torch.compile(self._forward, dynamic=False)

    def __call__(self, step: Step, arrivals: list[Arrival]) -> Taken:
        """Change the weights by one global batch."""
        rate = self.announce(step)
        return Taken(self.compute(step, arrivals), rate)

    def announce(self, step: Step) -> float:
        """Write what differs from step to step where the device reads it; return the rate."""
        self.model.turn_to(step)
        self.feed.turn_to(step)
        rate = self.update.rate_of(step)
        self.update.set_rate(rate)
        return rate

    def compute(self, step: Step, arrivals: list[Arrival]) -> int:
        """Do all of the device's work in a step; return the number of losses."""
        first, parts = not self.first.done, len(step.parts)
        read, forward = (self.read, self.forward) if not first else self._named_in_errors()
        items = 0
        if (details := self.details) is not None:
            name = type(self.update.optimizer).__name__
            details.before(step.number, step.number, name, self.update.optimizer)
        self.buffers.begin()
        for number, (part, arrival) in enumerate(zip(step.parts, arrivals, strict=True)):
            self.model.enter(step, part)
            inputs, targets = read(arrival)
            with self.reduce.part(number, parts):
                losses = forward(inputs, targets, part.counts)
                if number and losses.items * step.samples != items:
                    raise RecipeError(UNEVEN)
                # Of the global count, not of the replicas': the last batch may be uneven.
                items = step.samples * losses.items
                self.watch.mark("loss")
                self.reduce.backward(losses.sum, items)
                if details is not None:
                    each, shard = self.update.parameters, part.shards.start
                    details.piece(shard, (inputs, targets), [p.grad for p in each], each)
            self.watch.backward_ends(number + 1 == parts and not self.alone)
            self.meter.note(number, losses.sum, parts)
            if self.noise is not None:
                self.noise.part(number, items)
        self.buffers.check()
        self.lone.look(step.samples, whole=step.samples >= self.recipe.global_batch)
        if self.noise is not None:
            self.noise.step(whole=step.samples == self.recipe.global_batch)
        if self.shard_norms is not None and step.stride.looks:
            self.shard_norms.measure(step, arrivals)
        if first:
            self.first.after_backward()
            self.divide_again(step, arrivals)
        elif not self.alone and not self.compiled:
            self.first.refuse_missing(step.number)
        if self.hashed is not None and self.hashed.grad is not None:
            self.meter.hash(self.hashed.grad)
        if first:
            self.first.before_update(step)
        elif self.first.update_draws:
            self.model.seed_update(step)
        self.update.clip()
        self.watch.mark("optimizer step")
        self.update.step()
        if first:
            self.first.after_update()
        self.watch.mark("weight update")
        self.update.forget_gradients()
        self.meter.turn(parts)
        return items

    def _forward(self, inputs: Tensor, targets: Tensor, counts: bool) -> Losses:
        with autocast(self.recipe, self.device):
            outputs = self.ddp(inputs)
            if self.scores_needed:
                check_scores(outputs, self.scores_needed)
            self.watch.mark("output")
            losses = self.recipe.loss(outputs, targets)
        items = items_per_sample(losses, len(inputs), "loss")
        return Losses(losses.sum() if counts else losses.sum() * 0.0, items)

    def _named_in_errors(self) -> tuple[Callable[..., Batch], Callable[..., Losses]]:
        """Return `read` and `forward` with errors that name the recipe, for the first step."""
        if self.compiled:
            # A compiler may fail where the recipe is right: eager steps are tried then.
            return self.read, self.forward
        return self._named(self.read), self._named(self.forward)

    def _named(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def called(*arguments: Any) -> Any:
            try:
                return function(*arguments)
            except (LockstepError, torch.OutOfMemoryError):
                raise
            except Exception as error:
                name = self.recipe.name
                raise RecipeError(raised(f"the first step of {name}", error)) from error

        return called
