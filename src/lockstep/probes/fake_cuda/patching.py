"""Replace functions of torch, and remember what the replacements answered for."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any

import torch

CPU = torch.device("cpu")


class Machine:
    """The GPUs that are not there."""

    gpus = 0
    current = 0
    """The device that the script made current."""
    answered: dict[str, None] = {}  # noqa: RUF012
    """What the CPU answered for, in the order of first use."""


def note(fact: str) -> None:
    """Remember that the CPU answered for this."""
    Machine.answered[fact] = None


def index(device: Any) -> int:
    """Return the number of the GPU that is meant; refuse one that the machine would not have."""
    number: int | None
    if isinstance(device, int):
        number = device
    elif isinstance(device, str):
        _, _, digits = device.partition(":")
        number = int(digits) if digits else None
    else:
        # The device of a tensor is the CPU here, and stands for the current GPU.
        number = getattr(device, "index", None)
    if number is None or number < 0:
        return Machine.current
    if number >= Machine.gpus:
        raise RuntimeError(
            f"CUDA error: invalid device ordinal. The script asked for cuda:{number}, and runs as "
            f"if on a machine with {Machine.gpus} GPU(s), whose last is cuda:{Machine.gpus - 1}."
        )
    return number


def cpu(device: Any) -> Any:
    """Return the CPU if a GPU is meant, and any other argument as it is."""
    kind = type(device)
    if kind is torch.device:
        if device.type != "cuda":
            return device
    elif kind is str:
        if not device.startswith("cuda"):
            return device
    # A bare number is a GPU; a bool is some other argument.
    elif kind is not int:
        return device
    index(device)
    note("cuda")
    return CPU


def swap(names: str, make: Callable[[Any], Any], *homes: Any) -> None:
    """Replace `names` (space-separated) in every home that has them by the result of `make`.

    Skip names that this version of torch does not have.
    """
    for name in names.split():
        # One for each original, because torch compares functions by identity.
        made: dict[int, Any] = {}
        for home in homes:
            original = getattr(home, name, None)
            if original is None:
                continue
            if id(original) not in made:
                made[id(original)] = _named(make(original), name, home)
            setattr(home, name, made[id(original)])


def _named(new: Any, name: str, home: Any) -> Any:
    """Set the module and name by which pickle finds a function."""
    if isinstance(home, type):
        new.__module__, new.__qualname__ = home.__module__, f"{home.__qualname__}.{name}"
    elif not isinstance(new, type) and callable(new):
        new.__module__, new.__qualname__ = home.__name__, name
    return new


def answering(value: Callable[..., Any]) -> Callable[[Any], Any]:
    """Return a `make` for `swap` that calls `value` under the original's name and docstring."""

    def make(original: Any) -> Any:
        @wraps(original)
        def answer(*args: Any, **kwargs: Any) -> Any:
            return value(*args, **kwargs)

        return answer

    return make


def given(change: Callable[[dict[str, Any]], None]) -> Callable[[Any], Any]:
    """Return a `make` for `swap` that lets `change` edit the arguments by name before the call."""

    def make(original: Any) -> Any:
        signature = inspect.signature(original)

        @wraps(original)
        def call(*args: Any, **kwargs: Any) -> Any:
            bound = signature.bind(*args, **kwargs)
            change(bound.arguments)
            return original(*bound.args, **bound.kwargs)

        return call

    return make
