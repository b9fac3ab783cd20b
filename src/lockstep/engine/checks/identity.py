"""Tell whether a program is still the one that a checkpoint was made with.

A function is identified by its code, its helpers and its constants: so an edited loss is noticed,
also a lambda of the same name, while moved lines and comments are not.
"""

from __future__ import annotations

import functools
import hashlib
import sysconfig
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from torch import nn


def identity(value: Any) -> str:
    """Return a short hash of the code of a function, a class or the class of an object.

    >>> identity(lambda x: x + 1) == identity(lambda x: x + 1)
    True
    >>> identity(lambda x: x + 1) == identity(lambda x: x + 2)
    False
    """
    digest = hashlib.sha256()
    for part in _parts(value, set()):
        digest.update(part.encode() + b"\0")
    return digest.hexdigest()[:16]


def spoken(value: Any) -> str:
    """Return the name and place of a function or class."""
    if isinstance(value, functools.partial):
        return spoken(value.func)
    function = getattr(value, "__func__", value)
    if isinstance(function, nn.Module) or not hasattr(function, "__qualname__"):
        function = type(function)
    code = getattr(function, "__code__", None)
    place = f" (line {code.co_firstlineno} of {code.co_filename})" if code is not None else ""
    return f"{function.__qualname__.split('<locals>.')[-1]}{place}"


def _parts(value: Any, seen: set[int]) -> Iterator[str]:
    """Yield strings that together identify the value."""
    if isinstance(value, functools.partial):
        yield from _parts(value.func, seen)
        for item in (*value.args, *(pair for pair in sorted(value.keywords.items()))):
            yield from _parts(item, seen)
    elif isinstance(value, types.MethodType):
        yield from _parts(value.__func__, seen)
    elif isinstance(value, types.FunctionType):
        if id(value) in seen:
            return
        seen.add(id(value))
        if not _is_users(value.__code__.co_filename):
            # Another version of a library is another matter.
            yield value.__qualname__
            return
        yield from _code(value.__code__)
        for default in (*(value.__defaults__ or ()), *(value.__kwdefaults__ or {}).values()):
            yield from _parts(default, seen)
        for cell in value.__closure__ or ():
            try:
                content = cell.cell_contents
            except ValueError:
                continue  # a variable that has no value yet
            # Not numbers: a variable may change from step to step.
            if isinstance(content, types.FunctionType | functools.partial):
                yield from _parts(content, seen)
        for name in value.__code__.co_names:
            # Helpers and constants of the same file belong to the function.
            other = value.__globals__.get(name)
            if isinstance(other, types.FunctionType) and other.__module__ == value.__module__:
                yield from _parts(other, seen)
            elif name.isupper() and isinstance(other, bool | int | float | str | tuple):
                yield f"{name}={other!r}"
    elif isinstance(value, type):
        yield value.__qualname__
        if id(value) in seen:
            return
        seen.add(id(value))
        for base in value.__mro__:
            if base.__module__ == value.__module__:
                for name, item in sorted(vars(base).items()):
                    if isinstance(item, types.FunctionType):
                        yield name
                        yield from _parts(item, seen)
    elif isinstance(value, bool | int | float | str | bytes | None):
        yield repr(value)
    elif isinstance(value, tuple | list) and len(value) < 1000:
        for item in value:
            yield from _parts(item, seen)
    else:
        yield type(value).__qualname__


_INSTALLED = (
    sysconfig.get_path("stdlib"),
    sysconfig.get_path("purelib"),
    sysconfig.get_path("platlib"),
    str(Path(__file__).parents[2]),
)


def _is_users(path: str) -> bool:
    return not path.startswith(_INSTALLED)


def _code(code: types.CodeType) -> Iterator[str]:
    yield code.co_code.hex()
    yield repr(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _code(constant)
        elif constant != code.co_consts[0] or not isinstance(constant, str):
            # Not the docstring. A set has another order in another process.
            yield repr(sorted(map(repr, constant)) if isinstance(constant, frozenset) else constant)
