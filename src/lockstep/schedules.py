"""Learning-rate schedules: functions of a run's progress, from 0 to 1, to a factor of the rate."""

from lockstep.scaling.rates.schedules import (
    Schedule,
    constant,
    cosine,
    followed,
    linear,
    one_cycle,
    polynomial,
    step,
    triangle,
    warmed,
)

__all__ = [
    "Schedule",
    "constant",
    "cosine",
    "followed",
    "linear",
    "one_cycle",
    "polynomial",
    "step",
    "triangle",
    "warmed",
]
