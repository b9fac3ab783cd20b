"""An object that takes every call and does nothing, and modules made of it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from importlib.abc import Loader
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, Self

GIVES = {"subplots": 2, "hist": 3, "plot": 1}
"""Calls whose results scripts take apart, into so many."""


class Silent:
    """Has every attribute, is every context, holds nothing."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass

    def __getattr__(self, name: str) -> Any:
        # Python asks for these to find out what an object is.
        if name.startswith("__"):
            raise AttributeError(name)
        return _named(name)()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Nothing happens."""
        many = GIVES.get(type(self).__name__)
        return Silent() if many is None else tuple(Silent() for _ in range(many))

    def __getitem__(self, key: Any) -> Silent:
        return Silent()

    def __setitem__(self, key: Any, value: Any) -> None:
        pass

    def __iter__(self) -> Iterator[Any]:
        return iter(())

    def __len__(self) -> int:
        return 0

    def __bool__(self) -> bool:
        return True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        pass


class SummaryWriter(Silent):
    """TensorBoard's: scripts also save into its folder."""

    def __init__(self, log_dir: Any = None, *args: Any, **kwargs: Any) -> None:
        self.log_dir = self.logdir = os.fspath(log_dir or kwargs.get("logdir") or "runs")
        if self.log_dir != "runs":
            os.makedirs(self.log_dir, exist_ok=True)

    def get_logdir(self) -> str:
        """The folder."""
        return self.log_dir


class SilentLoader(Loader):
    """Makes modules in which everything is silent."""

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """One that has every name."""
        return _SilentModule(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """There is nothing to run."""


class _SilentModule(ModuleType):
    __version__ = "0"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        # Kept: a class must be the same each time.
        found = _named(name) if name[:1].isupper() else _named(name)()
        found = SummaryWriter if name == "SummaryWriter" else found
        setattr(self, name, found)
        return found


def _named(name: str) -> type[Silent]:
    """A class of its own, so that it can be called, and derived from, by its name."""
    return type(name, (Silent,), {})
