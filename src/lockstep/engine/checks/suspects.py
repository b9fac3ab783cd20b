"""Find what a piece of user code changes: counters, lists that grow, generators of its own."""

from __future__ import annotations

import inspect
import random
import types
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any

import numpy
import torch
from torch import nn

from lockstep.engine.checks.fingerprint import fingerprint
from lockstep.engine.recipe.prepare import some
from lockstep.errors import RecipeError

MOST = 2000
"""The most values that are looked at."""
DEPTH = 4
"""How far functions that call functions are followed."""
FEW = 20
"""The most items of a list or dictionary that are looked at one by one."""
LARGE = 1 << 20
"""Elements from which on a tensor counts as changed if it is another one, whatever it holds."""

_OF_TORCH = frozenset(vars(nn.Module()))
"""What every module has."""


_UNSEEDED = " (random.SystemRandom)"


def why_not(changed: Sequence[str]) -> str:
    """Return why an exact run refuses code that changes these variables."""
    return unseeded(changed) or (
        f"computing a shard changes {some(list(changed))}. A replica computes only its own shards, "
        "so it counts differently from one GPU, and the weights differ once they depend on it. "
        "Do not count, collect or draw in the loss or in forward. If only a log depends on it, "
        f"allow it with may_change={list(changed)!r}, or with --may-change {','.join(changed)}."
    )


def unseeded(changed: Sequence[str]) -> str:
    """Return a message about generators that no seed decides, if one is among these variables."""
    found = [name for name in changed if name.endswith(_UNSEEDED)]
    if not found:
        return ""
    return (
        f"{found[0].removesuffix(_UNSEEDED)} draws from the operating system "
        "(random.SystemRandom): no seed decides its numbers, and no two runs are alike. Use the "
        "functions of Python's module random, which lockstep seeds."
    )


def asks_for_worker(data: object) -> str | None:
    """Return a warning if a data set with an index looks at the worker that reads it."""
    code = getattr(getattr(type(data), "__getitem__", None), "__code__", None)
    if code is None or "get_worker_info" not in code.co_names:
        return None
    return (
        f"{type(data).__name__} asks which worker reads a sample (get_worker_info). If the sample "
        "depends on it, the weights depend on --workers and on the number of replicas."
    )


def refuse_closure(optimizer: torch.optim.Optimizer) -> None:
    """Refuse an optimizer that computes the loss itself, as L-BFGS does."""
    parameters = inspect.signature(type(optimizer).step).parameters
    if "closure" in parameters and parameters["closure"].default is inspect.Parameter.empty:
        raise RecipeError(
            f"{type(optimizer).__name__} needs a closure that computes the loss several times in "
            "a step. lockstep computes it once, on shards: use an optimizer such as AdamW."
        )


def check_generators(optimizer: torch.optim.Optimizer, *, exact: bool) -> str | None:
    """Refuse an optimizer with a generator of its own; in fast mode, return a warning."""
    own = [n for n, v in vars(optimizer).items() if isinstance(v, _GENERATORS)]
    if not own:
        return None
    kind = type(optimizer).__name__
    text = (
        f"{kind} draws from a generator of its own ({kind}.{own[0]}), which is in no checkpoint "
        "and may be another one on every replica. Use functions that draw from torch's, NumPy's or "
        "Python's own generator, such as torch.randn_like: lockstep seeds these before each update."
    )
    if exact:
        raise RecipeError(text)
    return text


_GENERATORS = (random.Random, numpy.random.Generator, numpy.random.RandomState, torch.Generator)


class Suspects:
    """Plain values and generators that some functions and models can reach now."""

    def __init__(
        self, functions: Sequence[Callable[..., Any]], modules: Sequence[nn.Module] = ()
    ) -> None:
        self.functions, self.modules = functions, modules
        self.before = dict(self._reachable())

    def changed(self) -> list[str]:
        """Return the names of what has changed since."""
        before = self.before
        return sorted({n[0] for n, value in self._reachable() if before.get(n, value) != value})

    def _reachable(self) -> Iterator[tuple[tuple[str, int], Any]]:
        """Yield names and values; of several with one name (two models of a class), each."""
        counts: Counter[str] = Counter()
        for name, value in islice(self._everything(set()), MOST):
            counts[name] += 1
            yield (name, counts[name]), value

    def _everything(self, seen: set[int]) -> Iterator[tuple[str, Any]]:
        for function in self.functions:
            yield from _of_function(function, seen, DEPTH)
        for module in self.modules:
            for path, layer in module.named_modules():
                place = f"{type(module).__name__}{'.' if path else ''}{path}"
                own = {n: v for n, v in vars(layer).items() if n not in _OF_TORCH}
                yield from _of_variables(place, own, seen)
                if not type(layer).__module__.startswith("torch."):
                    yield from _of_function(type(layer).forward, seen, DEPTH)
                hooks_of_weights = [p._backward_hooks or {} for p in layer.parameters(False)]
                for hooks in (layer._forward_hooks, layer._forward_pre_hooks, *hooks_of_weights):
                    for hook in hooks.values():
                        yield from _of_function(hook, seen, DEPTH)


def _of_function(function: Any, seen: set[int], depth: int) -> Iterator[tuple[str, Any]]:
    """Yield the variables that a function can see, and those of functions that it calls."""
    function = getattr(function, "func", function)
    owner = getattr(function, "__self__", None)
    if type(owner).__module__.startswith("lockstep."):
        return
    if owner is not None and not isinstance(owner, nn.Module | type | types.ModuleType):
        yield from _of_variables(type(owner).__name__, getattr(owner, "__dict__", {}), seen)
    function = getattr(function, "__func__", function)
    function = getattr(function, "__wrapped__", function)
    code = getattr(function, "__code__", None)
    if code is None:
        yield from _of_variables(type(function).__name__, getattr(function, "__dict__", {}), seen)
        return
    # Code that was made by exec belongs to no module.
    if id(function) in seen or not depth or (function.__module__ or "").startswith("lockstep."):
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
        if isinstance(value, types.FunctionType) and not (value.__module__ or "").startswith(
            "torch"
        ):
            yield from _of_function(value, seen, depth - 1)


def _of_variables(
    place: str, variables: dict[str, Any], seen: set[int]
) -> Iterator[tuple[str, Any]]:
    for name, value in list(variables.items()):
        known = f"{place}.{name}" if place else name
        if isinstance(value, nn.Module | type | types.ModuleType | types.FunctionType):
            continue
        if isinstance(value, random.SystemRandom):
            # Never equal to what it was.
            yield f"{known}{_UNSEEDED}", object()
            continue
        if (state := _state(value)) is not None:
            yield known, state
        if isinstance(value, dict) and len(value) < 100:
            for key, item in list(value.items()):
                if (state := _state(item)) is not None:
                    plain = isinstance(key, str | int | float | tuple)
                    yield f"{known}[{key!r}]" if plain else f"{known}[...]", state
        inner = hasattr(value, "__dict__") and not isinstance(value, torch.Tensor)
        if inner and not place and id(value) not in seen:
            seen.add(id(value))
            library = type(value).__module__.partition(".")[0] in ("lockstep", "torch")
            private = "_" if library else "__"
            own = {n: v for n, v in vars(value).items() if not n.startswith(private)}
            yield from _of_variables(known, own, seen)


def _state(value: Any, depth: int = 2) -> Any:
    """Return a value that differs if the object has changed; None if it is of no interest."""
    if isinstance(value, int | float | str):
        return repr(value)
    if isinstance(value, torch.Tensor):
        if value.numel() > LARGE or value.is_sparse:
            return (id(value), value._version)
        return (value.shape, value.dtype, int(fingerprint(value)))
    if isinstance(value, list | tuple | dict):
        items = value.values() if isinstance(value, dict) else value
        few = depth and len(value) <= FEW
        return ("length", len(value), [_state(item, depth - 1) for item in items] if few else [])
    if isinstance(value, set):
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
