"""Key the random numbers that training draws from NumPy, as those from torch."""

from __future__ import annotations

import sys
from functools import wraps
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lockstep.convert.verify.in_process.torch_draws import Draws, Shape
from lockstep.convert.verify.in_process.training_state import Now
from lockstep.probes.recorder import is_ours

SIZE = {
    "normal": 2,
    "uniform": 2,
    "randint": 2,
    "choice": 1,
    "standard_normal": 0,
    "random": 0,
    "random_sample": 0,
}
"""Position of the argument `size` of each function."""


def install(now: Now) -> None:
    """Replace the functions of numpy.random."""
    draws = Draws(now)
    for name, place in SIZE.items():
        setattr(np.random, name, _sized(draws, name, place, getattr(np.random, name)))
    for name in ("rand", "randn"):
        setattr(np.random, name, _dimensions(draws, name, getattr(np.random, name)))


def _sized(draws: Draws, name: str, place: int, original: Any) -> Any:
    @wraps(original)
    def made(*args: Any, **kwargs: Any) -> Any:
        size = args[place] if len(args) > place else kwargs.get("size")
        if size is None or not _ours(draws) or not _numbers(name, args, kwargs):
            return original(*args, **kwargs)
        shape = (size,) if isinstance(size, int | np.integer) else tuple(size)

        def make(shape: Shape, seed: int) -> Tensor:
            given = list(args)
            if len(args) > place:
                given[place] = shape
            named = {**kwargs, "size": shape} if "size" in kwargs else kwargs
            return _made(name, seed, *given, **named)

        return draws.drawn(f"numpy {name}", tuple(map(int, shape)), make).numpy()

    return made


def _dimensions(draws: Draws, name: str, original: Any) -> Any:
    @wraps(original)
    def made(*shape: Any) -> Any:
        if not shape or not _ours(draws):
            return original(*shape)
        whole = tuple(map(int, shape))
        return draws.drawn(f"numpy {name}", whole, lambda s, seed: _made(name, seed, *s)).numpy()

    return made


def _made(name: str, seed: int, *args: Any, **kwargs: Any) -> Tensor:
    found = getattr(np.random.RandomState(seed & 0xFFFFFFFF), name)(*args, **kwargs)
    return torch.from_numpy(np.asarray(found))


def _ours(draws: Draws) -> bool:
    # NumPy's functions also call each other: leave those calls alone.
    caller: Any = sys._getframe(2)
    while is_ours(caller.f_code.co_filename):
        caller = caller.f_back
    return "/numpy/" not in caller.f_code.co_filename and draws.active()


def _numbers(name: str, args: Any, kwargs: Any) -> bool:
    """Return whether torch can hold the result, and no argument has a row for each sample."""
    lists = [x for x in (*args, *kwargs.values()) if isinstance(x, np.ndarray)]
    if name != "choice":
        return not lists
    given = np.asarray(args[0] if args else kwargs.get("a"))
    return given.dtype.kind in "iuf"
