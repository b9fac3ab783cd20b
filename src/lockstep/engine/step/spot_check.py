"""In exact mode, let two replicas of a recipe compute the same shard, and compare the bits.

This finds what no rule knows: code that depends on its rank or its process, a counter that matters
late, a race, a faulty device. It runs beside the steps and changes nothing.
"""

from __future__ import annotations

from typing import NamedTuple

import torch

from lockstep.data import Arrival
from lockstep.data.nested import digest
from lockstep.engine.checks.fingerprint import fingerprint
from lockstep.engine.checks.messages import computed_by, gradients_differ, samples_differ
from lockstep.engine.checks.suspects import Suspects, why_not
from lockstep.engine.feed import Feed
from lockstep.engine.group import Group
from lockstep.engine.model import RecipeModel
from lockstep.engine.recipe.job import Job
from lockstep.engine.recipe.plan import cut
from lockstep.engine.sampler import Step
from lockstep.engine.step.beside import gradients_beside
from lockstep.engine.step.metrics import autocast
from lockstep.engine.step.timeline import StepWatch
from lockstep.engine.step.update import Update
from lockstep.errors import RecipeError, Untrusted
from lockstep.keys import key
from lockstep.layers.batch_norm import SyncedBatchNorm


class Found(NamedTuple):
    """The result of a replica that computed a shard."""

    rank: int
    shard: int
    samples: str
    """A hash of inputs and targets."""
    gradients: list[int]
    """A hash for each parameter."""


class SpotCheck:
    """Computes a shard twice on the replica that owns it, and once on the next replica."""

    def __init__(
        self,
        job: Job,
        group: Group,
        model: RecipeModel,
        feed: Feed,
        update: Update,
        watch: StepWatch,
    ) -> None:
        self.recipe, self.plan, self.every = job.recipe, job.plan, job.check_every
        self.group, self.model, self.feed, self.watch = group, model, feed, watch
        self.parameters = update.parameters
        if any(isinstance(layer, SyncedBatchNorm) for layer in model.module.modules()):
            # Its statistics are over all replicas: a shard alone is something else.
            self.every = 0
        self.functions = [job.recipe.loss, *job.recipe.augment]
        if (read := getattr(feed.second_loader.data, "__getitem__", None)) is not None:
            self.functions.append(read)
        """What the gradient of a shard comes from, besides the model."""
        self.begun, self.first_time = False, True

    def __call__(self, step: Step, arrivals: list[Arrival]) -> None:
        """Check a shard of the batch of `step`, if it is due; all replicas call this together."""
        self.first_time = not self.begun
        if not (due := self._due(step)):
            return
        # A recorded step may not have been launched yet.
        self.feed.turn_to(step)
        mine = self._shards_to_compute(due)
        # First from the samples that the training itself has read, perhaps in a worker.
        read = {
            part.shards.start: arrival
            for part, arrival in zip(step.parts, arrivals, strict=True)
            # Of a step of several batches, the first.
            if len(part.shards) == part.rounds == 1 and part.round == 0 and part.counts
        }
        every_own = [self._computed(step, shard, read.pop(shard, None)) for shard in mine]
        own = [found for found in every_own if found is not None]
        # Hooks of backward have fired, for no step of the training.
        self.watch.backward_ends(False)
        first: dict[int, Found] = {}
        for other in (found for every in self.group.objects(own) for found in every):
            one = first.setdefault(other.shard, other)
            if (one.samples, one.gradients) != (other.samples, other.gradients):
                self._refuse(step, one, other, self._changed_by(step, mine))
        if self.first_time:
            changed = self._changed_by(step, mine)
            if odd := [name for name in changed if name not in self.recipe.may_change]:
                raise RecipeError(why_not(odd))

    def _shards_to_compute(self, due: list[int]) -> list[int]:
        """Return what this replica computes of the shards that are due: its own ones twice."""
        rank, size = self.group.world.rank, self.plan.replicas
        owners = {shard: shard // self.plan.shards_per_replica for shard in due}
        own = [shard for shard, owner in owners.items() if owner == rank for _ in "ab"]
        others = [s for s, owner in owners.items() if owner != rank == (owner + 1) % size]
        return own + others

    def _due(self, step: Step) -> list[int]:
        """Return the shards to check, the same on every replica; in the first step one of each."""
        if not self.every:
            return []
        if not self.begun:
            self.begun = True
            own = self.plan.shards_per_replica
            return [rank * own for rank in range(self.plan.replicas)]
        number = key(self.recipe.seed, step.number, "check")
        return [number // self.every % self.plan.shards] if number % self.every == 0 else []

    def _computed(self, step: Step, shard: int, arrival: Arrival | None = None) -> Found | None:
        """Compute a shard; return None if it is empty, or if there is no memory to compute it."""
        order = self.feed.order.batch(step.epoch, step.batch, self.feed.loader.index_device)
        bounds = cut(len(order), self.plan.shards)
        samples = order[bounds[shard] : bounds[shard + 1]]
        if not len(samples):
            return None
        try:
            inputs, targets = (
                self.feed.read_again(step.epoch, samples)
                if arrival is None
                else self.feed.read(arrival)
            )
            self.model.visit(step, shard, len(samples))
            with autocast(self.recipe, self.group.device):
                losses = self.recipe.loss(self.model.module(inputs), targets)
            found = gradients_beside(losses.sum(), self.parameters)
            hashes = [0 if g is None else int(fingerprint(g)) for g in found]
        except torch.OutOfMemoryError:
            # A recorded step keeps its memory. A run that fits must not end because of a check.
            return None
        return Found(self.group.world.rank, shard, digest((inputs, targets)), hashes)

    def _changed_by(self, step: Step, shards: list[int]) -> list[str]:
        """Return the names of what another computation changes; all replicas call this."""
        own: list[str] = []
        for shard in shards[:1]:
            # What the first time creates or remembers may be the same ever after.
            self._computed(step, shard)
            suspects = Suspects(self.functions, [self.model.module])
            self._computed(step, shard)
            own = suspects.changed()
        return sorted({name for names in self.group.objects(own) for name in names})

    def _refuse(self, step: Step, one: Found, other: Found, changed: list[str]) -> None:
        # The first step has left no checkpoint.
        kind = RecipeError if self.first_time else Untrusted
        who, place = computed_by(one.rank, other.rank), f"step {step.number + 1}, shard {one.shard}"
        if one.samples != other.samples:
            raise kind(samples_differ(place, who, "augmentation"))
        names = {p: name for name, p in self.model.module.named_parameters()}
        pairs = zip(self.parameters, one.gradients, other.gradients, strict=True)
        differing = [names[p] for p, a, b in pairs if a != b]
        raise kind(gradients_differ(place, who, "recipe", differing, changed))
