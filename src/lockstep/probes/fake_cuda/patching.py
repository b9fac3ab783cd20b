"""Change the arguments of functions, and remember what the CPU answered for."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import cache
from typing import Any

import torch

from lockstep.probes.patching import calling

CPU = torch.device("cpu")
# Reading a signature takes longer than the call itself.
_signature = cache(inspect.signature)


class Machine:
    """The GPUs that are not there."""

    gpus = 0
    least = 0
    """GPUs up to this number may be named, too: a single process may choose any."""
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
    if number >= max(Machine.gpus, Machine.least):
        raise RuntimeError(
            f"CUDA error: invalid device ordinal. The script asked for cuda:{number}, and runs as "
            f"if on a machine with {Machine.gpus} GPU(s), whose last is cuda:{Machine.gpus - 1}."
        )
    if number and Machine.least:
        note(f"cuda:{number}")
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


def answering(value: Callable[..., Any]) -> Callable[[Any], Any]:
    """Return a `make` for `swap` that calls `value` under the original's name and docstring."""
    return calling(lambda _, *args, **kwargs: value(*args, **kwargs))


def given(change: Callable[[dict[str, Any]], None]) -> Callable[[Any], Any]:
    """Return a `make` for `swap` that lets `change` edit the arguments by name before the call."""

    def call(original: Any, *args: Any, **kwargs: Any) -> Any:
        bound = _signature(original).bind(*args, **kwargs)
        change(bound.arguments)
        return original(*bound.args, **bound.kwargs)

    return calling(call)


def without(*names: str) -> Callable[[Any], Any]:
    """Return a `make` for `swap` that removes arguments before the call."""

    def remove(arguments: dict[str, Any]) -> None:
        for name in names:
            arguments.pop(name, None)

    return given(remove)
