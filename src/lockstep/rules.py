"""Rules that adapt the learning rate to a larger batch, and the batch to the gradient's noise."""

from lockstep.scaling.batch.growth import Growth, Stride
from lockstep.scaling.rates.adascale import AdaScale
from lockstep.scaling.rates.rules import (
    AdamSettings,
    Legw,
    adam_sqrt_rule,
    adascale_gain,
    legw_rule,
    linear_rule,
    sqrt_rule,
)

__all__ = [
    "AdaScale",
    "AdamSettings",
    "Growth",
    "Legw",
    "Stride",
    "adam_sqrt_rule",
    "adascale_gain",
    "legw_rule",
    "linear_rule",
    "sqrt_rule",
]
