"""In fast mode, compute two shards of the first step together and one by one, and compare.

This finds losses and layers that mix samples.
"""

from __future__ import annotations

from lockstep.data import Arrival
from lockstep.engine.checks.fingerprint import TOLERANCE, relative_distance
from lockstep.engine.checks.suspects import Suspects
from lockstep.engine.program.tree import Gradients
from lockstep.engine.recipe.prepare import some
from lockstep.engine.replica import Replica
from lockstep.engine.sampler import Part, Step
from lockstep.engine.step.beside import gradients_beside
from lockstep.engine.step.metrics import autocast
from lockstep.layers.batch_norm import SyncedBatchNorm


class SecondDivision:
    """Computes a few shards of the first step again, and changes nothing."""

    def __init__(self, replica: Replica) -> None:
        self.recipe, self.device = replica.recipe, replica.device
        self.model, self.feed, self.watch = replica.model, replica.feed, replica.watch
        self.parameters = replica.update.parameters
        self.progress, self.exact = replica.progress, replica.first_step.exact

    def __call__(self, step: Step, arrivals: list[Arrival]) -> None:
        """Warn of a step whose gradient depends on how its batch is divided."""
        layers = self.model.module.modules()
        part, samples = step.parts[0], arrivals[0]
        if self.exact or any(isinstance(layer, SyncedBatchNorm) for layer in layers):
            # Synced statistics are over all replicas: a shard alone is something else.
            return
        if len(part.shards) < 2 or part.rounds > 1 or not part.counts:
            return
        whole = self._gradients(step, part, samples, 0, 2)
        pieces = [self._gradients(step, part, samples, n, 1) for n in range(2)]
        suspects = Suspects([self.recipe.loss], [self.model.module])
        self._gradients(step, part, samples, 1, 1)
        if odd := [name for name in suspects.changed() if name not in self.recipe.may_change]:
            self.progress.warn(
                f"computing a part of the batch changes {some(odd)}. If the weights depend on it, "
                "they will change with the number of replicas, which decides the parts. If "
                f"only a log does, --may-change {','.join(odd)} allows it."
            )
        # Hooks of backward have fired, for no step of the training.
        self.watch.backward_ends(False)
        apart = relative_distance(whole, pieces)
        if apart > TOLERANCE:
            self.progress.warn(
                "the gradient depends on how the batch is divided: two shards computed together "
                f"differ by {apart:.1%} from the same shards one by one. Fast mode will give "
                "a different result on a different number of replicas. Causes: a loss or a layer "
                "that mixes samples (a mean over the batch, in-batch negatives, mixup), or random "
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
        return gradients_beside(losses.sum(), self.parameters)
