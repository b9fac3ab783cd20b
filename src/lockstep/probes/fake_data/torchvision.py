"""Supply what an installed torchvision lacks: compiled operators, data sets, pretrained weights.

Each function takes a module of torchvision that has just been imported, and changes it.
"""

from __future__ import annotations

import inspect
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.parse import urlparse

import torch
from torch import nn
from torch.nn.modules.module import _IncompatibleKeys

from lockstep.probes.fake_data.datasets import KNOWN, fill, item, items, name_of
from lockstep.probes.fake_data.notes import note
from lockstep.probes.patching import calling, replaces, swap

MISSING = (RuntimeError, OSError, ImportError)
"""What the constructors raise if the files, or the library that reads them, are missing."""
_NOT_KEPT = {"download", "loader", "is_valid_file", "kwargs", "root"}
_libraries: list[torch.library.Library] = []
"""Torch forgets an operator when the library that declared it is deleted."""


def declare_operators(extension: ModuleType) -> None:
    """Let torchvision be imported if its compiled part does not load beside this torch.

    While it is imported, torchvision describes these operators to torch's compiler. A script that
    calls them still fails, with torchvision's own message.
    """
    if not extension._has_ops() and not _libraries:
        library = torch.library.Library("torchvision", "FRAGMENT")
        for name in ("nms", "qnms"):
            library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        _libraries.append(library)


def supply_data(datasets: ModuleType) -> None:
    """Fill data sets whose files are missing with stand-in data."""
    for name in KNOWN:
        kind: Any = getattr(datasets, name, None)
        if kind is None:
            continue
        if "__init__" in vars(kind):
            swap("__init__", calling(partial(_begin, datasets)), kind)
        if "__getitem__" in vars(kind):
            swap("__getitem__", calling(_take), kind)
        kind.__iter__ = items
    # Nobody knows what a DatasetFolder that is missing would hold; ImageFolder derives from it.
    if hasattr(datasets, "DatasetFolder"):
        swap("__getitem__", calling(_take), datasets.DatasetFolder)


def _begin(datasets: Any, original: Any, self: Any, *args: Any, **kwargs: Any) -> None:
    bound = inspect.signature(original).bind(self, *args, **kwargs)
    # Nothing is downloaded.
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


def _take(original: Any, self: Any, index: Any) -> Any:
    return item(self, index) if hasattr(self, "_lockstep") else original(self, index)


class _NoWeights(dict[str, Any]):
    """The state of a model that was never downloaded."""


def supply_weights(api: Any) -> None:
    """Give models random weights, the same in every process, for pretrained ones not yet here."""

    @replaces("get_state_dict", api.WeightsEnum)
    def found(read: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
        file = Path(urlparse(self.url).path).name
        if Path(torch.hub.get_dir(), "checkpoints", file).exists():
            return read(self, *args, **kwargs)
        note(f"{self!r}: random weights for pretrained ones")
        return _NoWeights()

    @replaces("load_state_dict", nn.Module)
    def loaded(load: Any, self: nn.Module, state_dict: Any, *args: Any, **kwargs: Any) -> Any:
        if not isinstance(state_dict, _NoWeights):
            return load(self, state_dict, *args, **kwargs)
        _draw(self)
        return _IncompatibleKeys([], [])


def _draw(model: nn.Module) -> None:
    generator = torch.Generator().manual_seed(0)
    for name, value in model.state_dict().items():
        if value.is_floating_point() and value.ndim > 1:
            value.normal_(0, value[0].numel() ** -0.5, generator=generator)
        elif name.endswith("bias"):
            value.zero_()
