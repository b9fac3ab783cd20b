"""Measure the noise scale from what DDP exchanges: each replica's gradient and their mean."""

import math
from collections.abc import Iterable, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

from lockstep.engine.exchange.hooks import Hook, all_reduce
from lockstep.engine.exchange.reduce import bucket_views
from lockstep.scaling.noise import (
    Diagonal,
    Estimate,
    NoiseScale,
    ShardNoise,
    Source,
    StepNoise,
    adam_diagonal,
    squared_length,
)
from lockstep.scaling.noise.sources import check_cut
from lockstep.scaling.noise.squared_norms import gradients_of, scaled

# No `from __future__ import annotations` here: DDP checks the annotations of its hooks.


class ReplicaNoise:
    """Notes the length of each replica's gradient before the exchange, and of the mean after it.

    Every `every` steps one small exchange averages the noted lengths over the replicas.
    """

    def __init__(
        self,
        parameters: Iterable[Tensor],
        global_batch: float,
        noise: NoiseScale | None = None,
        diagonal: Diagonal | None = None,
        every: int = 16,
    ) -> None:
        """Watch replicas that compute a batch of `global_batch` samples together."""
        self.replicas = dist.get_world_size()
        if self.replicas < 2:
            raise ValueError(
                "one replica has nothing to be compared with. Use StepNoise, which compares steps, "
                "or ShardNoise, which compares shards."
            )
        check_cut(global_batch, self.replicas)
        self.parameters = list(parameters)
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
        """Watch a DDP model that has no communication hook; gradients keep their bits."""
        found = cls(model.parameters(), global_batch, noise, diagonal, every)
        model.register_comm_hook(found, _watched)
        return found

    def before(self, bucket: dist.GradBucket, weight: float = 1.0) -> None:
        """Note the length of a bucket that holds this replica's gradient alone.

        `weight` makes it the mean over the replica's samples, if it is not.
        """
        parts = [bucket.buffer()]
        if self.diagonal is not None:
            parts = scaled(bucket.parameters(), bucket_views(bucket), self.diagonal)
        self.own.append(squared_length(parts) * weight**2)

    def forget(self) -> None:
        """Forget the step, because its batch was smaller."""
        self.own.clear()

    @torch.no_grad()
    def step(self) -> None:
        """Note the length of the exchanged gradients: after backward, before clipping."""
        if not self.own:
            return  # a backward pass without an exchange (no_sync)
        mean = gradients_of(self.parameters)
        length = squared_length(scaled(list(mean), list(mean.values()), self.diagonal))
        self.waiting.append((torch.stack(self.own).sum(), length))
        self.own.clear()
        if len(self.waiting) >= self.every:
            self._exchange()

    def estimate(self) -> Estimate:
        """Return the noise scale; all replicas must call this together, and get the same answer."""
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


def _watched(noise: ReplicaNoise, bucket: dist.GradBucket) -> torch.futures.Future[Tensor]:
    noise.before(bucket)
    return all_reduce(bucket)


class RunNoise:
    """Measures the noise scale of a run by comparing replicas, else shards, else steps."""

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        parameters: Sequence[Tensor],
        replicas: int,
        parts: int,
        batch: int,
        *,
        exact: bool,
    ) -> None:
        """Watch `replicas` replicas that compute their shares of a batch in `parts` parts each."""
        self.replicas, self.parts, self.exact = replicas, parts, exact
        self.optimizer = optimizer
        adam = isinstance(optimizer, torch.optim.Adam | torch.optim.AdamW)
        diagonal = adam_diagonal(optimizer) if adam else None
        self.source: ReplicaNoise | ShardNoise | StepNoise
        if replicas > 1:
            self.source = ReplicaNoise(parameters, batch, diagonal=diagonal)
        elif parts > 1:
            self.source = ShardNoise(parameters, batch, parts, diagonal=diagonal)
        else:
            self.source = StepNoise(parameters, batch, diagonal=diagonal)

    def around(self, exchange: Hook) -> Hook:
        """Return a hook that notes the length of a bucket, then calls `exchange`."""
        source = self.source
        assert isinstance(source, ReplicaNoise)

        def watched(bucket: dist.GradBucket) -> torch.futures.Future[Tensor]:
            source.before(bucket)
            return exchange(bucket)

        return watched

    def before(self, bucket: dist.GradBucket, items: int) -> None:
        """Note a bucket of exact mode: the sum over a replica's part of `items` losses."""
        assert isinstance(self.source, ReplicaNoise)
        self.source.before(bucket, self.replicas / items)

    def part(self, number: int, items: int) -> None:
        """Note the gradient after backward of part `number`; all parts have `items` losses."""
        if isinstance(self.source, ShardNoise) and self._has_units():
            # In exact mode gradients are divided after the last part only.
            self.source.weight = self.parts / items if self.exact else self.parts
            self.source.after(number)

    def step(self, *, whole: bool) -> None:
        """Note the exchanged gradient; a batch that is not `whole` does not count."""
        if not whole or not self._has_units():
            if isinstance(self.source, ReplicaNoise):
                self.source.forget()
        elif not isinstance(self.source, ShardNoise):
            self.source.step()

    def _has_units(self) -> bool:
        """Tell whether the units of the gradient are known: Adam's are from its first update on."""
        return self.source.diagonal is None or bool(self.optimizer.state)

    def estimate(self) -> dict[str, Any]:
        """Return the noise scale for metrics and run.json; all replicas call this together."""
        compared = {ReplicaNoise: "replicas", ShardNoise: "shards", StepNoise: "steps"}
        return described(compared[type(self.source)], self.source.estimate())


def described(source: str, found: Estimate) -> dict[str, Any]:
    """Return an estimate for run.json; a number that cannot be estimated is None."""
    numbers = {"value": found.value, "low": found.low, "high": found.high}
    known = {name: v if math.isfinite(v) else None for name, v in numbers.items()}
    return {"source": source, **known}
