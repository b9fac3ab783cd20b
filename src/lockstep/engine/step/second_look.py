"""A second look at the first step of a recipe: does it depend on anything but its samples?

In exact mode one shard is computed twice more, and the bits must agree: this finds code that counts
or draws from a generator of its own. In fast mode two shards are computed together and one by one:
this finds losses and layers that mix samples.
"""

from __future__ import annotations

import torch
from torch import Tensor

from lockstep.data import Arrival
from lockstep.engine.checks.fingerprint import TOLERANCE, fingerprint, relative_distance
from lockstep.engine.checks.suspects import Suspects
from lockstep.engine.recipe.prepare import some
from lockstep.engine.replica import Replica
from lockstep.engine.sampler import Part, Step
from lockstep.engine.step.metrics import autocast
from lockstep.errors import RecipeError
from lockstep.layers.batch_norm import SyncedBatchNorm

Gradients = list[Tensor | None]


class SecondLook:
    """Computes a few shards of the first step again, and changes nothing."""

    def __init__(self, replica: Replica) -> None:
        self.recipe, self.device = replica.recipe, replica.device
        self.model, self.feed, self.watch = replica.model, replica.feed, replica.watch
        self.parameters = replica.update.parameters
        self.progress, self.exact = replica.progress, replica.first_step.exact

    def __call__(self, step: Step, arrivals: list[Arrival]) -> None:
        """Refuse, or in fast mode warn of, a step that depends on more than its samples."""
        layers = self.model.module.modules()
        if any(isinstance(layer, SyncedBatchNorm) for layer in layers):
            # Its statistics are over all replicas: a shard alone is something else.
            return
        if self.exact:
            self._repeat(step, arrivals)
        else:
            self._divide(step, arrivals)
        # Hooks of backward have fired, for no step of the training.
        self.watch.backward_ends(False)

    def _repeat(self, step: Step, arrivals: list[Arrival]) -> None:
        suspects = Suspects(self.recipe.loss, [self.model.module])
        first, second = (self._gradients(step, step.parts[0], arrivals[0], 0, 1) for _ in "ab")
        names = {p: name for name, p in self.model.module.named_parameters()}
        pairs = zip(self.parameters, first, second, strict=True)
        odd = [names[p] for p, a, b in pairs if not _same_bits(a, b)]
        if not odd:
            return
        changed = suspects.changed()
        cause = (
            f"Between the two, this changed: {some(changed)}."
            if changed
            else "The code may count in a variable, or draw from a generator of its own."
        )
        raise RecipeError(
            f"the same shard, computed twice, gives different gradients, first of {some(odd)}. "
            f"Exact mode cannot keep its promise with this recipe. {cause}"
        )

    def _divide(self, step: Step, arrivals: list[Arrival]) -> None:
        part = step.parts[0]
        shards = len(part.shards)
        if shards < 2 or part.rounds > 1 or not part.counts:
            return
        whole = self._gradients(step, part, arrivals[0], 0, 2)
        pieces = [self._gradients(step, part, arrivals[0], n, 1) for n in range(2)]
        apart = relative_distance(whole, pieces)
        if apart > TOLERANCE:
            self.progress.warn(
                "the gradient depends on how the batch is divided: two shards computed together "
                f"differ by {apart:.1%} from the same shards one by one. Fast mode will give "
                "another result on another number of replicas. Causes: a loss or a layer that "
                "mixes samples (a mean over the batch, in-batch negatives, mixup), or random "
                "numbers drawn in the forward pass. Exact mode keeps the division fixed."
            )

    def _gradients(
        self, step: Step, part: Part, arrival: Arrival, first: int, number: int
    ) -> Gradients:
        """Return the gradient of the summed loss of some shards of a part."""
        sizes = part.sizes[first : first + number]
        start = part.shards.start + first
        shards = range(start, start + number)
        alone = Part(part.request, shards, sizes, counts=False)
        inputs, targets = self.feed.read(arrival)
        rows = slice(sum(part.sizes[:first]), sum(part.sizes[: first + number]))
        self.model.enter(step, alone)
        with autocast(self.recipe, self.device):
            losses = self.recipe.loss(self.model.module(inputs[rows]), targets[rows])
        return list(torch.autograd.grad(losses.sum(), self.parameters, allow_unused=True))


def _same_bits(one: Tensor | None, other: Tensor | None) -> bool:
    if one is None or other is None:
        return one is other
    return int(fingerprint(one)) == int(fingerprint(other))
