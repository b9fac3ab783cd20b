"""Measure batch norm at small local batches: one global batch, cut for more replicas."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy
import torch

from lockstep.labs.lab3_scale.batch_norm_stack import NormedStack
from lockstep.labs.lab3_scale.rate_grid import plain
from lockstep.labs.lab3_scale.training import Momentum, train
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
