"""Find what a piece of user code changes: counters, lists that grow, generators of its own."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy
import torch
from torch import nn

_PLAIN = (int, float, str)


class Suspects:
    """Plain values and generators that a loss function can reach, as they are now."""

    def __init__(self, loss: Callable[..., Any], modules: list[nn.Module]) -> None:
        self.loss, self.modules = loss, modules
        self.before = dict(self._reachable())

    def changed(self) -> list[str]:
        """Return the names of what has changed since."""
        before = self.before
        return sorted(n for n, value in self._reachable() if before.get(n, value) != value)

    def _reachable(self) -> Iterator[tuple[str, Any]]:
        for module in self.modules:
            for path, layer in module.named_modules():
                place = f"{type(module).__name__}{'.' if path else ''}{path}"
                yield from _values(place, vars(layer))
        function = getattr(self.loss, "__func__", self.loss)
        function = getattr(function, "func", function)
        code = getattr(function, "__code__", None)
        if code is None:
            yield from _values(type(self.loss).__name__, getattr(self.loss, "__dict__", {}))
            return
        cells = zip(code.co_freevars, function.__closure__ or (), strict=False)
        free = {}
        for name, cell in cells:
            try:
                free[name] = cell.cell_contents
            except ValueError:
                continue  # a variable that has no value yet
        yield from _values("", free)
        used = {n: function.__globals__[n] for n in code.co_names if n in function.__globals__}
        yield from _values("", used)


def _values(place: str, variables: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in list(variables.items()):
        known = f"{place}.{name}" if place else name
        if (state := _state(value)) is not None:
            yield known, state
        elif not isinstance(value, nn.Module | torch.Tensor | type) and not callable(value):
            for inner, item in list(getattr(value, "__dict__", {}).items()):
                if (state := _state(item)) is not None:
                    yield f"{known}.{inner}", state


def _state(value: Any) -> Any:
    """Return a value that differs if the object has changed; None if it is of no interest."""
    if isinstance(value, _PLAIN):
        return value
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
