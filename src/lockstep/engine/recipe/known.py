"""The functions that flags may name, by the recipe's field.

Models, optimizers and schedules are found where they are defined.
"""

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


KNOWN: dict[str, Functions] = {
    "model": _by_name(getattr(models, name) for name in models.__all__),
    "data": {
        "line": data.line,
        "digits": data.digits,
        "fashion-mnist": data.fashion_mnist,
        "cifar10": data.cifar10,
        "stdlib": data.stdlib,
        "synthetic": data.synthetic,
        "folder": data.folder,
    },
    "loss": _by_name(LOSSES),
    "metrics": _by_name(METRICS),
    "optimizer": optimizers(),
    "schedule": _schedules(),
    "augment": _by_name((augment.pad_crop, augment.flip, augment.flip_alternating, augment.cutout)),
}
