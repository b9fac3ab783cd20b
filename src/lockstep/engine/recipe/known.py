"""The functions that flags may name, by the recipe's field: each is found where it is defined."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from inspect import isfunction, signature
from typing import Any

from lockstep import data, models
from lockstep.data import augment
from lockstep.engine.step.metrics import LOSSES, METRICS
from lockstep.scaling.optimizers import optimizers
from lockstep.scaling.rates import schedules

Functions = dict[str, Callable[..., Any]]


def _by_name(functions: Iterable[Callable[..., Any]]) -> Functions:
    return {function.__name__: function for function in functions}


def _schedules() -> Functions:
    """Return the functions of progress in schedules.py."""
    own = [f for f in vars(schedules).values() if isfunction(f)]
    return _by_name(f for f in own if next(iter(signature(f).parameters)) == "progress")


def _data_sets() -> Functions:
    """Return the functions that `lockstep.data` offers and that return `Data`."""
    own = [f for f in (getattr(data, name) for name in data.__all__) if isfunction(f)]
    found = _by_name(f for f in own if signature(f).return_annotation == "Data")
    return {name.replace("_", "-"): function for name, function in found.items()}


def _augmentations() -> Functions:
    """Return the functions of augment.py that change images with the keys of their samples."""
    own = [f for f in vars(augment).values() if isfunction(f)]
    return _by_name(f for f in own if list(signature(f).parameters)[:2] == ["images", "keys"])


KNOWN: dict[str, Functions] = {
    "model": _by_name(getattr(models, name) for name in models.__all__),
    "data": _data_sets(),
    "loss": _by_name(LOSSES),
    "metrics": _by_name(METRICS),
    "optimizer": optimizers(),
    "schedule": _schedules(),
    "augment": _augmentations(),
}
