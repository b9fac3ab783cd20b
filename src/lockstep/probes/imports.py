"""Doing something when a module has been imported, before anybody else sees it."""

from __future__ import annotations

from collections.abc import Callable
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any


def behind(spec: ModuleSpec | None, call: Callable[[ModuleType], None]) -> ModuleSpec | None:
    """The spec, with a call behind its loader."""
    loader: Any = spec.loader if spec is not None else None
    if loader is not None:
        load = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            load(module)
            del loader.exec_module
            call(module)

        loader.exec_module = exec_module
    return spec
