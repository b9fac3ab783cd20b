"""Losses and metrics for recipes: functions of outputs and targets to one value per item."""

from lockstep.engine.step.metrics import accuracy, bits_per_byte, cross_entropy, squared_error

__all__ = ["accuracy", "bits_per_byte", "cross_entropy", "squared_error"]
