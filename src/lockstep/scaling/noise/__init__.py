"""The gradient noise scale: its estimate, and two ways to measure it on one replica."""

from lockstep.scaling.noise.estimate import Estimate, Moments, NoiseScale, moments
from lockstep.scaling.noise.sources import ShardNoise, Source, StepNoise
from lockstep.scaling.noise.squared_norms import Diagonal, adam_diagonal, squared_length

__all__ = [
    "Diagonal",
    "Estimate",
    "Moments",
    "NoiseScale",
    "ShardNoise",
    "Source",
    "StepNoise",
    "adam_diagonal",
    "moments",
    "squared_length",
]
