"""Read the program for one GPU and the pages of the steps from `pages/`."""

from __future__ import annotations

from functools import cache
from importlib import resources


@cache
def program() -> str:
    """Return the program for one GPU."""
    return page("program.txt")


def page(name: str) -> str:
    """Read a file of `pages/`."""
    return resources.files(__package__).joinpath("pages", name).read_text()
