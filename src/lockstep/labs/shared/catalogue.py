"""The labs, in the order in which learners take them. Every folder `labN_name` is a lab."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

from lockstep import labs as package
from lockstep.errors import UsageError

_LAB = re.compile(r"lab(\d+)_\w+")


@dataclass(frozen=True, kw_only=True)
class Lab:
    """A lab of the workshop."""

    folder: str
    """The lab's package: `labN_name`, with its experiments and `notebook.py`."""
    title: str
    question: str
    tasks: tuple[str, ...]
    """The names of the tasks that the learner completes."""

    @property
    def number(self) -> int:
        """The number in the name of the folder."""
        match = _LAB.fullmatch(Path(self.folder).name)
        assert match is not None, self.folder
        return int(match[1])

    @property
    def notebook(self) -> Path:
        """The path of the marimo notebook, which is a plain Python file."""
        return Path(self.folder, "notebook.py")


@cache
def labs() -> tuple[Lab, ...]:
    """Return all labs, by number."""
    names = [m.name for m in iter_modules(package.__path__) if _LAB.fullmatch(m.name)]
    found = [import_module(f"{package.__name__}.{name}").LAB for name in names]
    return tuple(sorted(found, key=lambda lab: lab.number))


def lab(number: int) -> Lab:
    """Return the lab with this number."""
    for one in labs():
        if one.number == number:
            return one
    raise UsageError(
        f"there is no lab {number}. The labs are: {', '.join(str(o.number) for o in labs())}."
    )
