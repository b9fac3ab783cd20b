"""Compare two batch sizes on one replica: a shard with its batch, or a step with the next."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from lockstep.scaling.noise.estimate import Estimate, NoiseScale, moments
from lockstep.scaling.noise.squared_norms import Diagonal, gradients_of, scaled, squared_length

HANDED_OVER = 32
"""How many steps wait on the device before the host reads them, which makes it wait."""


class Source:
    """Notes squared lengths of gradients over `small` and `big` samples, step by step."""

    def __init__(self, small: float, big: float, noise: NoiseScale | None = None) -> None:
        moments(0.0, 0.0, small, big)  # refuses sizes that tell nothing
        self.small, self.big = small, big
        self.noise = noise or NoiseScale()
        self.waiting: list[Tensor] = []

    def note(self, small_sqr: Tensor, big_sqr: Tensor) -> None:
        """Keep the lengths of one step, and read them later: nothing waits for the device now."""
        self.waiting.append(torch.stack([small_sqr, big_sqr]))
        if len(self.waiting) >= HANDED_OVER:
            self.hand_over()

    def hand_over(self) -> None:
        """Add all steps that wait to the average."""
        if self.waiting:
            for small_sqr, big_sqr in torch.stack(self.waiting).tolist():
                self.noise.see(moments(small_sqr, big_sqr, self.small, self.big))
            self.waiting.clear()

    def estimate(self) -> Estimate:
        """Return the noise scale."""
        self.hand_over()
        return self.noise.estimate()


def check_cut(batch: float, parts: int) -> None:
    """Refuse parts without samples."""
    if batch < parts:
        raise ValueError(
            f"a batch of {batch:g} cannot be compared in {parts} parts: each needs a sample of its "
            "own. Use StepNoise, which compares steps, or a larger batch."
        )


class StepNoise(Source):
    """Compares a step with the next, as if their batches were two halves of one.

    This works in any loop, on any number of replicas, because it uses the exchanged gradient. It
    takes memory for one more gradient. It assumes that the weights hardly move in one step: their
    movement looks like noise.
    """

    def __init__(
        self,
        parameters: Iterable[Tensor],
        batch: float,
        noise: NoiseScale | None = None,
        diagonal: Diagonal | None = None,
    ) -> None:
        """Watch steps of `batch` samples."""
        super().__init__(batch, 2 * batch, noise)
        self.parameters, self.diagonal = list(parameters), diagonal
        self.before: dict[Tensor, Tensor] = {}

    @torch.no_grad()
    def step(self) -> None:
        """Measure the gradients: after backward, before the update."""
        now = gradients_of(self.parameters)
        if not self.before:
            self.before = {p: g.clone() for p, g in now.items()}
            return
        # Pairs that share no step are independent of each other, as the interval assumes.
        before, self.before = self.before, {}
        both = [p for p in now if p in before]
        if not both:
            return
        first = scaled(both, [before[p] for p in both], self.diagonal)
        second = scaled(both, [now[p] for p in both], self.diagonal)
        each = (squared_length(first) + squared_length(second)) / 2
        torch._foreach_add_(first, second)
        self.note(each, squared_length(first) / 4)


class ShardNoise(Source):
    """Compares the first shard of an accumulated gradient with the whole."""

    def __init__(
        self,
        parameters: Iterable[Tensor],
        batch: float,
        shards: int,
        noise: NoiseScale | None = None,
        diagonal: Diagonal | None = None,
        weight: float | None = None,
    ) -> None:
        """Watch `shards` shards that make up `batch` samples.

        `weight` turns the gradient of the first shard into the mean over that shard. By default
        each loss is a mean that was divided by the number of shards.
        """
        if shards < 2:
            raise ValueError(
                "one shard has nothing to be compared with. Cut the batch into two or more, or use "
                "StepNoise, which compares steps."
            )
        check_cut(batch, shards)
        super().__init__(batch / shards, batch, noise)
        self.parameters, self.shards, self.diagonal = list(parameters), shards, diagonal
        self.weight = shards if weight is None else weight
        self.first: Tensor | None = None

    @torch.no_grad()
    def after(self, shard: int) -> None:
        """Measure the gradients after backward of shard number `shard`, from 0."""
        if 0 < shard < self.shards - 1:
            return
        now = gradients_of(self.parameters)
        length = squared_length(scaled(list(now), list(now.values()), self.diagonal))
        if shard == 0:
            self.first = length * self.weight**2
        elif self.first is not None:
            self.note(self.first, length)
            self.first = None
