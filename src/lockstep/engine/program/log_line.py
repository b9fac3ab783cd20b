"""What a loop logs about its optimizers: losses, learning rates and noise scales."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lockstep.engine.program.step import Stepper


def losses_of(sums: Mapping[str, list[float]], *, several: bool) -> dict[str, float]:
    """Return the mean loss of each optimizer, from its sum and its count."""
    named = {name: total / (count or 1) for name, (total, count) in sums.items()}
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
