"""Call a function when a module has been imported, before other code sees the module."""

from __future__ import annotations

from collections.abc import Callable
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any


def behind(spec: ModuleSpec | None, call: Callable[[ModuleType], None]) -> ModuleSpec | None:
    """Return the spec, changed to call a function once its loader has run."""
    loader: Any = spec.loader if spec is not None else None
    if loader is not None:
        load = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            load(module)
            del loader.exec_module
            call(module)

        loader.exec_module = exec_module
    return spec
