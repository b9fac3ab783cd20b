"""The checks of a submission. Every file in this folder defines one as `CHECK`."""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

from lockstep.assess.evidence import Check, Evidence, Verdict, unjudged

_FOUND: list[Check] = [import_module(f"{__name__}.{m.name}").CHECK for m in iter_modules(__path__)]
CHECKS = tuple(sorted(_FOUND, key=lambda check: check.place))
"""All checks, in the order in which a learner reads them."""


def judged(evidence: Evidence) -> dict[str, Verdict]:
    """Judge by all checks. If the program did not run to its end, judge only by the first."""
    first, *others = CHECKS
    found = {first.name: first.judge(evidence)}
    for check in others:
        found[check.name] = (
            check.judge(evidence)
            if found[first.name].passed
            else unjudged("not judged: the program must start and end first")
        )
    return found
