"""Measure the gradient noise scale, the batch size up to which more samples per step pay."""

from lockstep.engine.exchange.noise import ReplicaNoise
from lockstep.scaling.noise import (
    Estimate,
    Moments,
    NoiseScale,
    ShardNoise,
    StepNoise,
    adam_diagonal,
)

__all__ = [
    "Estimate",
    "Moments",
    "NoiseScale",
    "ReplicaNoise",
    "ShardNoise",
    "StepNoise",
    "adam_diagonal",
]
