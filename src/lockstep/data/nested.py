"""Batches of any structure: tensors in tuples, lists, dicts, dataclasses, or objects with `to`."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy
import torch
from torch import Tensor
from torch.utils.data import default_collate


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


def digest(value: Any) -> str:
    """Return a hash of a sample or batch: of its tensors, arrays, numbers and strings."""
    found = hashlib.sha256()
    for part in _bytes_in(value):
        found.update(part)
    return found.hexdigest()[:16]


def _bytes_in(value: Any) -> Iterator[bytes]:
    if isinstance(value, Tensor):
        yield f"{value.dtype}{tuple(value.shape)}".encode()
        if not value.is_sparse:
            flat = value.detach().cpu().contiguous().reshape(-1)
            if flat.stride() != (1,):
                # A single element counts as contiguous whatever its stride is.
                flat = flat.new_empty(flat.shape).copy_(flat)
            yield flat.view(torch.uint8).numpy().tobytes()
    elif isinstance(value, numpy.ndarray):
        yield f"{value.dtype}{value.shape}".encode()
        yield value.tobytes() if value.dtype != object else repr(value.tolist()).encode()
    elif isinstance(value, Mapping):
        for name, item in value.items():
            yield repr(name).encode()
            yield from _bytes_in(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _bytes_in(item)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            yield from _bytes_in(getattr(value, field.name))
    elif isinstance(value, str | bytes | int | float | complex | None):
        yield repr(value).encode()
    else:
        yield type(value).__qualname__.encode()


def stack(samples: list[Any]) -> Any:
    """Make one batch of samples as torch does by default, also of dataclasses."""
    first = samples[0]
    if dataclasses.is_dataclass(first) and not isinstance(first, type):
        names = [field.name for field in dataclasses.fields(first)]
        return type(first)(**{n: stack([getattr(s, n) for s in samples]) for n in names})
    return default_collate(samples)


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
