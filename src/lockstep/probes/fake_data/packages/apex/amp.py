"""Mixed precision that computes in float32: nothing is scaled."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


def initialize(models: Any, optimizers: Any = None, *args: Any, **kwargs: Any) -> Any:
    """Return models and optimizers as they are."""
    return models if optimizers is None else (models, optimizers)


@contextmanager
def scale_loss(loss: Any, optimizers: Any, *args: Any, **kwargs: Any) -> Iterator[Any]:
    """Yield the loss as it is."""
    yield loss


def master_params(optimizer: Any) -> Iterator[Any]:
    """Yield the parameters of an optimizer."""
    for group in optimizer.param_groups:
        yield from group["params"]


def state_dict(*args: Any, **kwargs: Any) -> dict[str, Any]:
    """Return no state: there are no loss scales."""
    return {}


def load_state_dict(state: Any) -> None:
    """Accept any state."""


def float_function(function: Any) -> Any:
    """Return the function as it is."""
    return function


half_function = promote_function = float_function
