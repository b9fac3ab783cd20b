"""Losses and metrics for recipes: functions of outputs and targets to one value per item.

`whole(function)` makes a metric over the whole test set of a function of all outputs and targets.
"""

from lockstep.engine.recipe.recipe import Whole as whole
from lockstep.engine.step.metrics import accuracy, bits_per_byte, cross_entropy, squared_error

__all__ = ["accuracy", "bits_per_byte", "cross_entropy", "squared_error", "whole"]
