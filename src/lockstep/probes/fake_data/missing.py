"""Installed torchvision without the data: constructors that find none get stand-in data."""

from __future__ import annotations

import inspect
from functools import wraps
from types import ModuleType
from typing import Any

from lockstep.probes.fake_data.datasets import KNOWN, fill, item, items, name_of

MISSING = (RuntimeError, OSError, ImportError)
"""What the constructors raise where there are no files, or nothing to read them with."""
_NOT_KEPT = {"download", "loader", "is_valid_file", "kwargs", "root"}


def install(datasets: ModuleType) -> None:
    """Change the classes of `torchvision.datasets`."""
    for name in KNOWN:
        kind: Any = getattr(datasets, name, None)
        if kind is None:
            continue
        if "__init__" in vars(kind):
            kind.__init__ = _beginning(kind.__init__, datasets)
        if "__getitem__" in vars(kind):
            kind.__getitem__ = _taking(kind.__getitem__)
        kind.__iter__ = items
    # A folder of anything: only of images it is known what they are.
    folder: Any = getattr(datasets, "DatasetFolder", None)
    if folder is not None:
        folder.__getitem__ = _taking(folder.__getitem__)


def _beginning(original: Any, datasets: Any) -> Any:
    signature = inspect.signature(original)

    @wraps(original)
    def begin(self: Any, *args: Any, **kwargs: Any) -> None:
        bound = signature.bind(self, *args, **kwargs)
        # Nothing is fetched: it is there, or it is stood in for.
        for place in (bound.arguments, bound.arguments.get("kwargs", {})):
            if place.get("download"):
                place["download"] = False
        try:
            original(*bound.args, **bound.kwargs)
        except MISSING:
            name = name_of(self)
            if name is None:
                raise
            bound.apply_defaults()
            given = {**bound.arguments, **bound.arguments.get("kwargs", {})}
            _, root, *_ = given.values()
            changes = {key: given.get(key) for key in ("transform", "target_transform")}
            datasets.VisionDataset.__init__(self, root, **changes)
            for key, value in list(given.items())[2:]:
                if key not in _NOT_KEPT and key not in changes:
                    setattr(self, key, value)
            fill(self, name)

    return begin


def _taking(original: Any) -> Any:
    @wraps(original)
    def take(self: Any, index: Any) -> Any:
        return item(self, index) if hasattr(self, "_lockstep") else original(self, index)

    return take
