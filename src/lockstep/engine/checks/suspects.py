"""Find what a piece of user code changes: counters, lists that grow, generators of its own."""

from __future__ import annotations

import random
import types
from collections.abc import Callable, Iterator
from typing import Any

import numpy
import torch
from torch import nn

MOST = 2000
"""The most values that are looked at."""
DEPTH = 4
"""How far functions that call functions are followed."""


class Suspects:
    """Plain values and generators that a loss function and the models can reach now."""

    def __init__(self, loss: Callable[..., Any], modules: list[nn.Module]) -> None:
        self.loss, self.modules = loss, modules
        self.before = dict(self._reachable())

    def changed(self) -> list[str]:
        """Return the names of what has changed since."""
        before = self.before
        return sorted(n for n, value in self._reachable() if before.get(n, value) != value)

    def _reachable(self) -> Iterator[tuple[str, Any]]:
        seen: set[int] = set()
        found = self._everything(seen)
        for _ in range(MOST):
            if (pair := next(found, None)) is None:
                return
            yield pair

    def _everything(self, seen: set[int]) -> Iterator[tuple[str, Any]]:
        yield from _of_function(self.loss, seen, DEPTH)
        for module in self.modules:
            for path, layer in module.named_modules():
                place = f"{type(module).__name__}{'.' if path else ''}{path}"
                own = {n: v for n, v in vars(layer).items() if not n.startswith("_")}
                yield from _of_variables(place, own, seen)
                if not type(layer).__module__.startswith("torch."):
                    yield from _of_function(type(layer).forward, seen, DEPTH)
                for hooks in (layer._forward_hooks, layer._forward_pre_hooks):
                    for hook in hooks.values():
                        yield from _of_function(hook, seen, DEPTH)


def _of_function(function: Any, seen: set[int], depth: int) -> Iterator[tuple[str, Any]]:
    """Yield the variables that a function can see, and those of functions that it calls."""
    function = getattr(function, "func", function)
    owner = getattr(function, "__self__", None)
    if owner is not None and not isinstance(owner, nn.Module | type | types.ModuleType):
        yield from _of_variables(type(owner).__name__, getattr(owner, "__dict__", {}), seen)
    function = getattr(function, "__func__", function)
    function = getattr(function, "__wrapped__", function)
    code = getattr(function, "__code__", None)
    if code is None:
        yield from _of_variables(type(function).__name__, getattr(function, "__dict__", {}), seen)
        return
    if id(function) in seen or not depth:
        return
    seen.add(id(function))
    visible = {n: function.__globals__[n] for n in code.co_names if n in function.__globals__}
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=False):
        try:
            visible[name] = cell.cell_contents
        except ValueError:
            continue  # a variable that has no value yet
    yield from _of_variables("", visible, seen)
    for value in visible.values():
        if isinstance(value, types.FunctionType) and not value.__module__.startswith("torch"):
            yield from _of_function(value, seen, depth - 1)


def _of_variables(
    place: str, variables: dict[str, Any], seen: set[int]
) -> Iterator[tuple[str, Any]]:
    for name, value in list(variables.items()):
        known = f"{place}.{name}" if place else name
        if isinstance(value, nn.Module | type | types.ModuleType | types.FunctionType):
            continue
        if (state := _state(value)) is not None:
            yield known, state
        if isinstance(value, dict) and len(value) < 100:
            for key, item in list(value.items()):
                if (state := _state(item)) is not None:
                    yield f"{known}[{key!r}]", state
        inner = hasattr(value, "__dict__") and not isinstance(value, torch.Tensor)
        if inner and not place and id(value) not in seen:
            seen.add(id(value))
            own = {n: v for n, v in vars(value).items() if not n.startswith("_")}
            yield from _of_variables(known, own, seen)


def _state(value: Any) -> Any:
    """Return a value that differs if the object has changed; None if it is of no interest."""
    if isinstance(value, int | float | str):
        return repr(value)
    if isinstance(value, torch.Tensor):
        return (id(value), value._version)
    if isinstance(value, list | dict | set):
        return ("length", len(value))
    if isinstance(value, random.Random):
        return hash(value.getstate())
    if isinstance(value, numpy.random.Generator):
        return repr(value.bit_generator.state)
    if isinstance(value, numpy.random.RandomState):
        return repr(value.get_state())
    if isinstance(value, torch.Generator):
        return value.get_state().numpy().tobytes()
    if type(value).__module__ == "itertools":
        return repr(value)
    return None
