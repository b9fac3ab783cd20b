"""Find the tensors of a batch of any shape, and join the batches of several ranks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping
from copy import copy
from dataclasses import fields, is_dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence

IGNORED = -100
"""The target that torch's losses leave out."""
PLAIN = Tensor | str | bytes | int | float | None
"""Values that a batch has once. Batches can be joined only if all ranks have the same value."""


def mapped(data: Any, change: Callable[[Tensor], Any]) -> Any:
    """Return a batch with all its tensors changed."""
    if isinstance(data, Tensor):
        return change(data)
    named = _named(data)
    if named is not None:
        return _like(data, {key: mapped(value, change) for key, value in named.items()})
    if isinstance(data, list | tuple):
        return _like(data, [mapped(value, change) for value in data])
    return data


def _named(data: Any) -> Mapping[Any, Any] | None:
    """Return the parts of a batch that have names, or None."""
    if isinstance(data, Mapping):
        return data
    if is_dataclass(data) and not isinstance(data, type):
        return {field.name: getattr(data, field.name) for field in fields(data)}
    return None


def _like(original: Any, content: Any) -> Any:
    """Return the content as the original's type, if that type accepts it."""
    if isinstance(original, tuple) and hasattr(original, "_fields"):
        return type(original)(*content)
    if isinstance(original, MutableMapping):
        made: Any = copy(original)
        made.update(content)
        return made
    if is_dataclass(original):
        made = copy(original)
        for name, value in content.items():
            object.__setattr__(made, name, value)  # it may be frozen
        return made
    try:
        return type(original)(content)
    except TypeError:
        return content


def tensors(data: Any) -> list[Tensor]:
    """Return every tensor inside a batch."""
    found: list[Tensor] = []
    mapped(data, lambda t: found.append(t) or t)  # type: ignore[func-returns-value]
    return found


def joined(batches: list[Any], sizes: list[int]) -> Any:
    """Join the batches of several ranks; raise TypeError for a type that cannot be joined.

    >>> joined([[torch.ones(1, 2), ["a"]], [torch.ones(1, 2), ["b"]]], [1, 1])
    [tensor([[1., 1.],
            [1., 1.]]), ['a', 'b']]
    """
    first = batches[0]
    if len(batches) == 1:
        return first
    if isinstance(first, Tensor) and first.dim():
        lengths = ([batch.shape[dim] for batch in batches] for dim in range(min(2, first.dim())))
        return torch.cat(batches, next((dim for dim, n in enumerate(lengths) if n == sizes), 0))
    if _named(first) is not None:
        parts: list[Any] = [_named(batch) for batch in batches]
        names = dict.fromkeys(name for part in parts for name in part)
        return _like(first, {n: joined([part[n] for part in parts], sizes) for n in names})
    if isinstance(first, list | tuple) and not isinstance(first, PackedSequence):
        if _by_sample(batches, sizes):
            return _like(first, [value for batch in batches for value in batch])
        return _like(first, [joined(list(p), sizes) for p in zip(*batches, strict=True)])
    if isinstance(first, PLAIN) and all(batch == first for batch in batches):
        return first
    raise TypeError(f"each rank has a {type(first).__name__} of its own")


def _by_sample(batches: list[Any], sizes: list[int]) -> bool:
    """Whether lists have a value for each sample, as detectors do, not a tensor for each field."""
    if hasattr(batches[0], "_fields") or [len(batch) for batch in batches] != sizes:
        return False
    return len(set(sizes)) > 1 or not all(_holds(value, sizes[0]) for value in batches[0])


def _holds(value: Any, size: int) -> bool:
    """Whether a value has a row for each of `size` samples."""
    if isinstance(value, Mapping):
        return bool(value) and all(_holds(inner, size) for inner in value.values())
    if isinstance(value, list | tuple):
        return len(value) == size
    return isinstance(value, Tensor) and value.dim() > 0 and size in value.shape[:2]


def counted(batches: list[Any]) -> int:
    """Count the targets that are not ignored, and the entries of masks that are set."""
    found = 0
    for tensor in tensors(batches):
        if tensor.dtype == torch.bool:
            found += int(tensor.sum())
        elif not tensor.is_floating_point() and bool((tensor == IGNORED).any()):
            found += int((tensor != IGNORED).sum())
        elif tensor.dim() > 1 and bool(((tensor == 0) | (tensor == 1)).all()):
            found += int(tensor.sum())
    return found
