"""The linear neuron y = w x + b, with which gradient descent is taught."""

from torch import nn


def line() -> nn.Module:
    """One weight and one bias."""
    return nn.Linear(1, 1)
