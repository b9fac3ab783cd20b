"""The log lines of a loop about its optimizers: losses, learning rates and noise scales."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from lockstep.engine.program.losses import CountCheck, Warns
from lockstep.engine.program.step import Stepper


class LossSums:
    """The losses and counts of each optimizer since the last log, over all shards."""

    def __init__(self, progress: Warns) -> None:
        self.tables: dict[str, list[Tensor]] = {}
        """The losses of steps that have not been read from the device yet."""
        self.sums: dict[str, list[float]] = {}
        self.counts = CountCheck(progress)

    def add(self, name: str, table: Tensor) -> None:
        """Add the sums and counts of one step; they stay on the device."""
        self.tables.setdefault(name, []).append(table)

    def read(self) -> dict[str, list[float]]:
        """Return sum and count of each optimizer, added up one step after the other."""
        for name, tables in self.tables.items():
            sums = self.sums.setdefault(name, [0.0, 0.0])
            for total, count in torch.stack(tables).sum(2).tolist():
                self.counts.look(name, total, count)
                sums[:] = sums[0] + total, sums[1] + count
        self.tables = {}
        return self.sums

    def load(self, sums: Mapping[str, list[float]]) -> None:
        """Continue from saved sums."""
        self.sums = {name: list(pair) for name, pair in sums.items()}

    def not_finite(self) -> str | None:
        """Return the name of an optimizer whose loss is not a number."""
        bad = [n for n, sums in self.read().items() if not all(map(math.isfinite, sums))]
        return bad[0] if bad else None

    def means(self, *, several: bool) -> dict[str, float]:
        """Return the mean loss of each optimizer, and forget the sums."""
        named = {name: total / (count or 1) for name, (total, count) in self.read().items()}
        self.sums = {}
        return {f"loss_{name}" if several else "loss": value for name, value in named.items()}


def rates_of(steppers: Mapping[str, Stepper]) -> dict[str, Any]:
    """Return learning rates, and noise scales if measured; all replicas call this together."""
    found: dict[str, Any] = {}
    for name, stepper in steppers.items():
        end = f"_{name}" if len(steppers) > 1 else ""
        rate = stepper.optimizer.param_groups[0].get("lr")
        if rate is not None:
            found[f"learning_rate{end}"] = float(rate)
        if stepper.noise is not None:
            noise = stepper.noise.estimate()
            found[f"noise_scale{end}"] = noise["value"]
            found[f"noise_low{end}"], found[f"noise_high{end}"] = noise["low"], noise["high"]
    return found


def noise_of(steppers: Mapping[str, Stepper]) -> dict[str, Any] | None:
    """Return the noise scale of the first optimizer, if it is measured; for run.json."""
    found = [s.noise.estimate() for s in steppers.values() if s.noise is not None]
    return found[0] if found else None
