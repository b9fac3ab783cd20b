"""One rewrite per file: `rewrite` changes the draft where its idea applies and reports what it did.

A new file here is a new rewrite. Its `ORDER` says when it runs: a rewrite may rely on what earlier
ones have noted in `Work`, and where two insert text at one place, the text of the earlier comes
first. Rewrites do not import each other; what several need is in `analysis/`, `dividing` or
`wrapping`.
"""

from __future__ import annotations

from functools import cache
from types import ModuleType

from lockstep.convert.discovery import modules_in_order


@cache
def all_rewrites() -> list[ModuleType]:
    """Return all rewrites, in the order in which they run."""
    return modules_in_order(__name__)
