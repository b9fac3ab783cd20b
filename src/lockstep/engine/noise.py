"""The noise scale from what DDP exchanges anyway: each replica's gradient against their mean."""

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

from lockstep.engine.reduce import bucket_views
from lockstep.scaling.noise import Diagonal, Estimate, NoiseScale, Source, squared_length
from lockstep.scaling.noise.lengths import gradients_of, scaled

# No `from __future__ import annotations` here: DDP checks the annotations of its hooks.


class ReplicaNoise:
    """A communication hook that notes the length of each replica's gradient before the exchange.

    The length of the mean is taken after it, by `step`. Every `every` steps one small exchange
    averages the noted lengths over the replicas.
    """

    def __init__(
        self,
        model: DistributedDataParallel,
        global_batch: float,
        noise: NoiseScale | None = None,
        diagonal: Diagonal | None = None,
        every: int = 16,
    ) -> None:
        """Replicas that compute a batch of `global_batch` samples together."""
        self.replicas = dist.get_world_size()
        if self.replicas < 2:
            raise ValueError(
                "one replica has nothing to be compared with. Use StepNoise, which compares steps, "
                "or ShardNoise, which compares shards."
            )
        self.parameters = [p for p in model.parameters() if p.requires_grad]
        self.diagonal, self.every = diagonal, every
        self.source = Source(global_batch / self.replicas, global_batch, noise)
        self.own: list[Tensor] = []
        self.waiting: list[tuple[Tensor, Tensor]] = []

    @classmethod
    def attach(
        cls,
        model: DistributedDataParallel,
        global_batch: float,
        noise: NoiseScale | None = None,
        diagonal: Diagonal | None = None,
        every: int = 16,
    ) -> "ReplicaNoise":
        """Listen to a DDP model that has no hook of its own; no bit of a gradient changes."""
        found = cls(model, global_batch, noise, diagonal, every)
        model.register_comm_hook(found, _all_reduce)
        return found

    def before(self, bucket: dist.GradBucket) -> None:
        """Note the length of a bucket that holds this replica's gradient alone."""
        if self.diagonal is None:
            self.own.append(squared_length([bucket.buffer()]))
        else:
            parts = scaled(bucket.parameters(), bucket_views(bucket), self.diagonal)
            self.own.append(squared_length(parts))

    @torch.no_grad()
    def step(self) -> None:
        """Look at the exchanged gradients: after backward, before they are clipped or used."""
        if not self.own:
            return  # a backward pass without an exchange (no_sync)
        mean = gradients_of(self.parameters)
        length = squared_length(scaled(list(mean), list(mean.values()), self.diagonal))
        self.waiting.append((torch.stack(self.own).sum(), length))
        self.own.clear()
        if len(self.waiting) >= self.every:
            self._exchange()

    def estimate(self) -> Estimate:
        """The noise scale now; all replicas must ask together, and get the same answer."""
        self._exchange()
        return self.source.estimate()

    def _exchange(self) -> None:
        if not self.waiting:
            return
        own = torch.stack([length for length, _ in self.waiting])
        dist.all_reduce(own)
        for length, (_, mean) in zip(own / self.replicas, self.waiting, strict=True):
            self.source.note(length, mean)
        self.waiting.clear()


def _all_reduce(noise: ReplicaNoise, bucket: dist.GradBucket) -> torch.futures.Future[Tensor]:
    """What DDP does by itself, to the bit: it multiplies by a reciprocal."""
    noise.before(bucket)
    buffer = bucket.buffer().mul_(1.0 / noise.replicas)
    return dist.all_reduce(buffer, async_op=True).get_future().then(lambda _: buffer)
