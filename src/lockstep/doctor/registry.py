"""All rules, by their codes: every file in `rules/` is one; one in `seen/` is its eyes in a run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from typing import TYPE_CHECKING

from lockstep.doctor import rules, seen
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
    """How rules see their bugs in a run, by the names of the rules."""
    found = [m.name for m in iter_modules(seen.__path__)]
    return {name: import_module(f"{seen.__name__}.{name}").seen for name in found}
