"""Turn what a function returns into tensors with names."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from lockstep.errors import UsageError


def tensors(value: Any, *, exact: bool) -> dict[str, Tensor]:
    """Return all tensors and numbers in a value, by their place in it.

    >>> tensors({"loss": [0.5, 2]}, exact=False)
    {"['loss'][0]": tensor(0.5000), "['loss'][1]": tensor(2)}
    """
    found = dict(_named(value, "", exact))
    if not found:
        raise UsageError(
            f"the function returns {type(value).__name__}, which holds nothing to compare. Return "
            "the model, its state_dict(), tensors or numbers."
        )
    return found


def _named(value: Any, place: str, exact: bool) -> Iterator[tuple[str, Tensor]]:
    if isinstance(value, DistributedDataParallel):
        value = value.module
    if isinstance(value, nn.Module | torch.optim.Optimizer):
        value = value.state_dict()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = vars(value)
    if isinstance(value, Tensor):
        yield place, value.detach()
    elif isinstance(value, np.ndarray | np.generic):
        yield place, torch.from_numpy(np.asarray(value).copy())
    elif isinstance(value, bool | int):
        yield place, torch.tensor(value)
    elif isinstance(value, float):
        # Most numbers come from tensors in float32, and carry its rounding.
        yield place, torch.tensor(value, dtype=torch.float64 if exact else torch.float32)
    elif isinstance(value, Mapping):
        for key, one in value.items():
            yield from _named(one, f"{place}[{key!r}]", exact)
    elif isinstance(value, list | tuple):
        for number, one in enumerate(value):
            yield from _named(one, f"{place}[{number}]", exact)
    elif value is not None and not isinstance(value, str):
        raise UsageError(
            f"the function returns a {type(value).__name__}{f' in {place}' * bool(place)}, which "
            "cannot be compared. Return the model, its state_dict(), tensors or numbers."
        )
