"""Batches of any structure: tensors in tuples, lists, dicts, dataclasses, or objects with `to`."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor


def map_tensors(value: Any, function: Callable[[Tensor], Tensor]) -> Any:
    """Return `value` with `function` applied to each tensor in it; the structure stays.

    >>> map_tensors({"x": [torch.ones(2)], "name": "a"}, lambda t: t + 1)
    {'x': [tensor([2., 2.])], 'name': 'a'}
    """
    if isinstance(value, Tensor):
        return function(value)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(map_tensors(item, function) for item in value))
    if isinstance(value, list | tuple):
        return type(value)([map_tensors(item, function) for item in value])
    if isinstance(value, dict):
        copy = value.copy()
        copy.update((name, map_tensors(item, function)) for name, item in value.items())
        return copy
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {f.name: getattr(value, f.name) for f in dataclasses.fields(value) if f.init}
        return dataclasses.replace(
            value, **{name: map_tensors(item, function) for name, item in fields.items()}
        )
    if isinstance(value, Mapping):
        return {name: map_tensors(item, function) for name, item in value.items()}
    return value


def move(value: Any, device: torch.device, *, non_blocking: bool = False) -> Any:
    """Return `value` with its tensors on `device`; an object with its own `to` moves itself."""
    if device.type == "cpu":
        # Batches are read on the CPU.
        return value
    plain = isinstance(value, Tensor | tuple | list | dict) or dataclasses.is_dataclass(value)
    if not plain and hasattr(value, "to"):
        return value.to(device)
    return map_tensors(value, lambda t: t.to(device, non_blocking=non_blocking))


def tensors_in(value: Any) -> Iterator[Tensor]:
    """Yield every tensor in `value`, in order."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from tensors_in(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from tensors_in(item)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            yield from tensors_in(getattr(value, field.name))


def rows_in(value: Any) -> int | None:
    """Return the most rows that a tensor or list in a batch has; None if it has none at all.

    >>> rows_in({"tokens": torch.zeros(4, 7), "names": ["a", "b", "c", "d"]})
    4
    """
    if isinstance(value, Tensor):
        return len(value) if value.dim() else None
    found: list[int | None]
    if isinstance(value, Mapping):
        found = [rows_in(item) for item in value.values()]
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        found = [rows_in(getattr(value, field.name)) for field in dataclasses.fields(value)]
    elif isinstance(value, list | tuple):
        inner = [rows_in(item) for item in value]
        # A list of tensors, one for each sample; a tuple holds columns.
        found = [*inner, len(value) if isinstance(value, list) else None]
    elif hasattr(value, "__len__") and not isinstance(value, str | bytes):
        found = [len(value)]
    else:
        found = []
    return max((rows for rows in found if rows is not None), default=None)
