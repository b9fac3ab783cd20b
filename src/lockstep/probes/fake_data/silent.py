"""Objects that accept every call and do nothing, and modules made of them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from importlib.abc import Loader
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, Self

GIVES = {"subplots": 2, "hist": 3, "plot": 1}
"""Calls whose results scripts unpack, and into how many values."""


class Silent:
    """An object with every attribute, which works as a context and holds nothing."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass

    def __getattr__(self, name: str) -> Any:
        # Python asks for these to find out what an object is.
        if name.startswith("__"):
            raise AttributeError(name)
        return _named(name)()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Do nothing; return as many silent objects as a script expects."""
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
    """TensorBoard's writer, with the folder that scripts also save into."""

    def __init__(self, log_dir: Any = None, *args: Any, **kwargs: Any) -> None:
        self.log_dir = self.logdir = os.fspath(log_dir or kwargs.get("logdir") or "runs")
        if self.log_dir != "runs":
            os.makedirs(self.log_dir, exist_ok=True)

    def get_logdir(self) -> str:
        """Return the folder."""
        return self.log_dir


class SilentLoader(Loader):
    """Makes silent modules."""

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Return a module that has every name."""
        return _SilentModule(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Do nothing: the module has no code."""


class _SilentModule(ModuleType):
    __version__ = "0"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        # Keep it: a script must get the same class each time.
        found = _named(name) if name[:1].isupper() else _named(name)()
        found = SummaryWriter if name == "SummaryWriter" else found
        setattr(self, name, found)
        return found


def _named(name: str) -> type[Silent]:
    """Return a class of this name, to call or to derive from."""
    return type(name, (Silent,), {})
