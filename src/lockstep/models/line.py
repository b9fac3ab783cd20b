"""The linear neuron y = w x + b, for lessons on gradient descent."""

from torch import nn


def line() -> nn.Module:
    """Build a linear neuron with one weight and one bias."""
    return nn.Linear(1, 1)
