"""All rules, by their codes: every file in `rules/` is one."""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

from lockstep.doctor import rules
from lockstep.doctor.findings import Rule

RULES: tuple[Rule, ...] = tuple(
    sorted(
        (import_module(f"{rules.__name__}.{m.name}").RULE for m in iter_modules(rules.__path__)),
        key=lambda rule: rule.code,
    )
)
