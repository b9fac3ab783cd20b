"""The changes that turn a script for one process into a script for many.

One change per file: `rewrite` makes it in all files of the program. A new file here is a new
change. Its `ORDER` is its place among the others.
"""

from __future__ import annotations

from functools import cache
from types import ModuleType

from lockstep.convert.discovery import modules_in_order


@cache
def all_rewrites() -> list[ModuleType]:
    """Return all changes, in the order in which they are made."""
    return modules_in_order(__name__)
