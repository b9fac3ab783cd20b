"""Collect all rules: `rules/x.py` reads the source, and `watchers/x.py` reads a run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from typing import TYPE_CHECKING

from lockstep.doctor import rules
from lockstep.doctor import watchers as package
from lockstep.doctor.findings import Rule, Seen

if TYPE_CHECKING:
    from lockstep.probes.trace import Trace

RULES: tuple[Rule, ...] = tuple(
    sorted(
        (import_module(f"{rules.__name__}.{m.name}").RULE for m in iter_modules(rules.__path__)),
        key=lambda rule: rule.code,
    )
)


@cache
def watchers() -> dict[str, Callable[[Trace], Iterator[Seen]]]:
    """Return the functions that find bugs in a run, by rule name."""
    found = [m.name for m in iter_modules(package.__path__)]
    return {name: import_module(f"{package.__name__}.{name}").seen for name in found}
