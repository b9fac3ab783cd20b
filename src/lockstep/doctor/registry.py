"""Collect all rules: `rules/x.py` reads the source, and `watchers/x.py` reads a run."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Any

from lockstep.doctor import rules
from lockstep.doctor import watchers as package
from lockstep.doctor.findings import Rule, Sighting

if TYPE_CHECKING:
    from types import ModuleType

    from lockstep.probes.trace import Trace


def _functions(folder: ModuleType, name: str) -> dict[str, Any]:
    """Return the function called `name` of each module in a folder, by rule name."""
    found = [m.name for m in iter_modules(folder.__path__)]
    return {m: getattr(import_module(f"{folder.__name__}.{m}"), name) for m in found}


@cache
def watchers() -> dict[str, Callable[[Trace], Iterator[Sighting]]]:
    """Return the functions that find bugs in a run, by rule name."""
    return _functions(package, "look")


_LOOKS = _functions(rules, "look")
_TABLE = tomllib.loads(Path(__file__).with_name("rules.toml").read_text("utf-8"))
RULES: tuple[Rule, ...] = tuple(
    Rule(name=name, look=_LOOKS.get(name), **row | {"handled_by": frozenset(row["handled_by"])})
    for name, row in _TABLE.items()
)
"""All rules, in the order of their codes."""
