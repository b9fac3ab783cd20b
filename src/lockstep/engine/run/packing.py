"""Pack nested state (of an optimizer, a scheduler, anything with `state_dict`) without pickle.

Tensors go into a flat dict by their place; everything else becomes JSON.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping
from typing import Any

import numpy
import torch
from torch import Tensor

from lockstep.errors import RecipeError


def pack(value: Any, place: str, tensors: dict[str, Tensor]) -> Any:
    """Return `value` as JSON, and put its tensors into `tensors`.

    >>> found = {}
    >>> pack({"step": 3, 0: (torch.ones(1),)}, "sgd", found), list(found)
    ({'$dict': [['step', 3], [0, {'$tuple': [{'$tensor': 'sgd/0/0'}]}]]}, ['sgd/0/0'])
    """
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Tensor):
        tensors[place] = value.detach()
        return {"$tensor": place}
    if isinstance(value, numpy.ndarray) and value.dtype.kind in "biuf":
        tensors[place] = torch.from_numpy(value.copy())
        return {"$array": place}
    if isinstance(value, numpy.generic):
        return value.item()
    if isinstance(value, Mapping):
        items = [[key, pack(item, f"{place}/{key}", tensors)] for key, item in value.items()]
        for key, _ in items:
            if not isinstance(key, bool | int | float | str | None):
                raise RecipeError(f"{place} has a key of type {type(key).__name__}: {_HOW}")
        return {"$counter" if isinstance(value, Counter) else "$dict": items}
    for name, kind in _SEQUENCES.items():
        if isinstance(value, kind):
            listed = sorted(value) if isinstance(value, set) else list(value)
            packed = [pack(v, f"{place}/{n}", tensors) for n, v in enumerate(listed)]
            return packed if name == "$list" else {name: packed}
    raise RecipeError(f"{place} is {type(value).__name__}: {_HOW}")


_SEQUENCES: dict[str, type[Any]] = {"$list": list, "$tuple": tuple, "$set": set, "$deque": deque}
_HOW = (
    "a checkpoint holds tensors, numbers, strings, and lists and dicts of them. Leave it out of "
    "state_dict."
)


def unpack(value: Any, tensors: Mapping[str, Tensor]) -> Any:
    """Return what `pack` was given."""
    if isinstance(value, list):
        return [unpack(item, tensors) for item in value]
    if not isinstance(value, dict):
        return value
    ((kind, content),) = value.items()
    if kind == "$tensor":
        return tensors[content]
    if kind == "$array":
        return tensors[content].numpy()
    if kind in ("$dict", "$counter"):
        found = {key: unpack(item, tensors) for key, item in content}
        return found if kind == "$dict" else Counter(found)
    return _SEQUENCES[kind](unpack(item, tensors) for item in content)
