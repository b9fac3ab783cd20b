"""The program for one GPU, and the pages of its steps, as they lie in `pages/`."""

from __future__ import annotations

from functools import cache
from importlib import resources


@cache
def program() -> str:
    """The program."""
    return page("program.txt")


def page(name: str) -> str:
    """A file."""
    return resources.files(__package__).joinpath("pages", name).read_text()
