"""Put functions of ours in the place of functions of torch, Python or a library."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any


def swap(names: str, make: Callable[[Any], Any], *homes: Any) -> None:
    """Replace `names` (space-separated) in every home that has them by the result of `make`.

    Skip names that this version of a library does not have.
    """
    for name in names.split():
        # One for each original, because torch compares functions by identity.
        made: dict[int, Any] = {}
        for home in homes:
            original = getattr(home, name, None)
            if original is None:
                continue
            if id(original) not in made:
                made[id(original)] = _named(make(original), name, home)
            setattr(home, name, made[id(original)])


def _named(new: Any, name: str, home: Any) -> Any:
    """Set the module and name by which pickle finds a function."""
    if isinstance(home, type):
        new.__module__, new.__qualname__ = home.__module__, f"{home.__qualname__}.{name}"
    elif not isinstance(new, type) and callable(new):
        new.__module__, new.__qualname__ = home.__name__, name
    return new


def calling(new: Callable[..., Any]) -> Callable[[Any], Any]:
    """Return a `make` for `swap` that calls `new` with the original, then with the arguments."""

    def make(original: Any) -> Any:
        @wraps(original)
        def called(*args: Any, **kwargs: Any) -> Any:
            return new(original, *args, **kwargs)

        return called

    return make


def replaces(names: str, *homes: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Let the decorated function take the place of `names`; its first argument is the original."""

    def put(new: Callable[..., Any]) -> Callable[..., Any]:
        swap(names, calling(new), *homes)
        return new

    return put
