"""Find the modules of a package that each add one thing: a rewrite or a reason to refuse."""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules
from types import ModuleType


def modules_in_order(package: str) -> list[ModuleType]:
    """Import the modules of a package and sort them by their ORDER."""
    path = import_module(package).__path__
    found = [import_module(f"{package}.{module.name}") for module in iter_modules(path)]
    return sorted(found, key=lambda module: module.ORDER)
