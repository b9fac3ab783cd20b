"""Optimizers for large batches, one file each. A file that defines `OPTIMIZER` is found."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

from torch.optim import SGD, Adam, AdamW


def optimizers() -> dict[str, Callable[..., Any]]:
    """Return every optimizer by the name that --optimizer takes: torch's, and those here."""
    modules = [import_module(f"{__name__}.{info.name}") for info in iter_modules(__path__)]
    own = [module.OPTIMIZER for module in modules if hasattr(module, "OPTIMIZER")]
    return {kind.__name__.lower(): kind for kind in (SGD, AdamW, Adam, *own)}
