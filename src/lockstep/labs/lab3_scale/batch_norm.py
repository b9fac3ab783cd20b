"""Measure batch norm at small local batches: one global batch, cut for more replicas.

The statistics are those of each replica, of shards of a fixed size, or of the whole batch. Only the
cut of the batch differs: into the batches of the replicas, into shards, or not at all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy
import torch
from torch import Tensor

from lockstep.labs.lab3_scale.model_stack import Momentum, Stack, train
from lockstep.labs.lab3_scale.rate_grid import plain
from lockstep.labs.shared.apart import Report
from lockstep.labs.shared.digits import CLASSES, PIXELS, digits
from lockstep.labs.shared.drawing import Figure, axes, line, spread, ticks
from lockstep.report.page import BLUE, GREEN, ORANGE

SIZES = (PIXELS, 64, 64, CLASSES)
BATCH = 128
LOCALS = (2, 4, 8, 16, 32, 128)
SHARD = 16
"""The samples of a fixed shard."""
RATES = (0.1, 0.3)
EPOCHS, SEEDS = 6, 5
MOMENTUM, EPS = 0.1, 1e-5
"""The defaults of torch's batch norm."""


@dataclass(frozen=True, kw_only=True)
class Norms:
    """The accuracy by kind of statistics."""

    batch: int
    locals: list[int]
    """The samples of a replica in a step."""
    shard: int
    rates: list[float]
    epochs: int
    local: list[Any]
    """With each replica's own statistics: by local batch, epoch, rate, seed."""
    ghost: list[Any]
    """With statistics of fixed shards, on up to as many replicas: by epoch, rate, seed."""
    synced: list[Any]
    """With statistics of the global batch, on any number of replicas: by epoch, rate, seed."""

    @cached_property
    def arrays(self) -> dict[str, numpy.ndarray]:
        """The accuracies as arrays; None counts as 0."""
        kinds = {"local": self.local, "ghost": self.ghost, "synced": self.synced}
        return {n: numpy.nan_to_num(numpy.array(v, float), nan=0.0) for n, v in kinds.items()}


def measure(report: Report, epochs: int = EPOCHS, seeds: int = SEEDS) -> Norms:
    """Train one stack for each cut of the batch."""
    torch.set_num_threads(1)
    cuts = [("local", BATCH // own) for own in LOCALS] + [("ghost", BATCH // SHARD)]
    found: dict[str, list[Any]] = {"local": [], "ghost": []}
    for number, (kind, parts) in enumerate(cuts):
        report(number / len(cuts), f"statistics over {BATCH // parts} samples")
        found[kind].append(_trained(parts, epochs, seeds, merged=kind != "local"))
    return Norms(
        batch=BATCH,
        locals=list(LOCALS),
        shard=SHARD,
        rates=list(RATES),
        epochs=epochs,
        local=found["local"],
        ghost=found["ghost"][0],
        # All replicas together compute the same as one replica with the whole batch.
        synced=found["local"][-1],
    )


def _trained(parts: int, epochs: int, seeds: int, *, merged: bool) -> Any:
    # Use whole batches only: the last one of an epoch cannot be cut into equal parts.
    samples = digits().first_batches(BATCH)
    per_epoch = len(samples) // BATCH
    stack = NormedStack(
        SIZES,
        [s for _ in RATES for s in range(seeds)],
        parts,
        merged=merged,
        device=samples.inputs.device,
    )
    rates = torch.tensor(RATES).repeat_interleave(seeds)
    looks = [per_epoch * n for n in range(1, epochs + 1)]
    found = train(stack, samples, Momentum(stack, rates), batch=BATCH, looks=looks)
    return plain(found.accuracy.view(epochs, len(RATES), seeds), 4)


def figure(found: Norms, *, epochs: int, rate: float) -> Figure:
    """Draw the accuracy by local batch, for three kinds of statistics."""
    at, which = epochs - 1, found.rates.index(rate)
    local = found.arrays["local"][:, at, which]
    ghost, synced = (found.arrays[kind][at, which] for kind in ("ghost", "synced"))
    x = found.locals
    fit = [b for b in x if b >= found.shard]
    sides = [
        ("each replica's own", x, local, BLUE),
        (f"fixed shards of {found.shard}", fit, numpy.tile(ghost, (len(fit), 1)), ORANGE),
        ("synchronised", x, numpy.tile(synced, (len(x), 1)), GREEN),
    ]
    data = []
    for number, (name, places, seeds, colour) in enumerate(sides):
        # Shift the bars a little: overlapping bars cannot be read.
        shifted = [float(f"{place * 1.06 ** (number - 1):.4g}") for place in places]
        curve = line(name, shifted, seeds.mean(1), colour)
        curve |= {"mode": "lines+markers", "marker": {"size": 8}}
        data.append(spread(curve, seeds.tolist()))
    layout = axes(
        "samples of a replica in a step",
        f"test accuracy after {epochs} epochs",
        x_axis=ticks(x),
    )
    drop = local[-1].mean() - local[0].mean()
    note = (
        f"The global batch is {found.batch}; bars show all {local.shape[1]} seeds. "
        f"Own statistics over {x[0]} samples instead of {x[-1]} lose {100 * drop:.1f} points. "
        f"Shards of {found.shard} serve up to {found.batch // found.shard} replicas, and the "
        "result is the same on any number of them."
    )
    return {"data": data, "layout": layout, "note": note}


class NormedStack(Stack):
    """Perceptrons with batch norm before each ReLU, over `parts` equal slices of a batch."""

    def __init__(
        self,
        sizes: Sequence[int],
        seeds: Sequence[int],
        parts: int,
        *,
        merged: bool,
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
    ) -> None:
        """With `merged`, test with the mean of all running statistics, else with the first part's.

        DDP leaves those of the first part: it sends the first replica's buffers to all.
        """
        super().__init__(sizes, seeds, device, dtype)
        self.parts, self.merged, self.training = parts, merged, True
        like = self.parameters[0]
        hidden = list(sizes[1:-1])
        self.scales = [like.new_ones(len(self), 1, width).requires_grad_() for width in hidden]
        self.shifts = [like.new_zeros(len(self), 1, width).requires_grad_() for width in hidden]
        self.means = [like.new_zeros(len(self), parts, width) for width in hidden]
        self.variances = [like.new_ones(len(self), parts, width) for width in hidden]

    def trained(self) -> list[Tensor]:
        """Return the parameters, including the scale and shift of each norm."""
        return [*self.parameters, *self.scales, *self.shifts]

    def between(self, hidden: Tensor, layer: int) -> Tensor:
        """Normalise each part by itself in model_stack, otherwise by the running statistics."""
        if self.training:
            parts = hidden.unflatten(1, (self.parts, -1))
            # Not torch.var_mean, which takes five times as long over few samples.
            mean = parts.mean(2, keepdim=True)
            centred = parts - mean
            variance = centred.square().mean(2, keepdim=True)
            self._remember(layer, mean.detach(), variance.detach(), parts.shape[2])
            out = (centred * torch.rsqrt(variance + EPS)).flatten(1, 2)
        else:
            mean, variance = (self._seen(of[layer]) for of in (self.means, self.variances))
            out = (hidden - mean) * torch.rsqrt(variance + EPS)
        return torch.addcmul(self.shifts[layer], out, self.scales[layer]).relu()

    def _remember(self, layer: int, mean: Tensor, variance: Tensor, count: int) -> None:
        self.means[layer].lerp_(mean[:, :, 0], MOMENTUM)
        # Like torch, remember the unbiased estimate.
        self.variances[layer].lerp_(variance[:, :, 0] * (count / (count - 1)), MOMENTUM)

    def _seen(self, rows: Tensor) -> Tensor:
        return rows.mean(1, keepdim=True) if self.merged else rows[:, :1]

    def test(self, inputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Test with the running statistics."""
        self.training = False
        try:
            return super().test(inputs, targets)
        finally:
            self.training = True
