"""The labs, in the order in which learners take them: every folder `labN_name` is one."""

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
    """One page of the workshop."""

    folder: str
    """The lab's package: `labN_name`, with its experiments and `notebook.py`."""
    title: str
    question: str
    tasks: tuple[str, ...]
    """Names of what the learner has to fill in."""

    @property
    def number(self) -> int:
        """The number in the folder's name."""
        match = _LAB.fullmatch(Path(self.folder).name)
        assert match is not None, self.folder
        return int(match[1])

    @property
    def notebook(self) -> Path:
        """A marimo notebook, which is a plain Python file."""
        return Path(self.folder, "notebook.py")


@cache
def labs() -> tuple[Lab, ...]:
    """All labs, by number."""
    names = [m.name for m in iter_modules(package.__path__) if _LAB.fullmatch(m.name)]
    found = [import_module(f"{package.__name__}.{name}").LAB for name in names]
    return tuple(sorted(found, key=lambda lab: lab.number))


def lab(number: int) -> Lab:
    """The lab with this number."""
    for one in labs():
        if one.number == number:
            return one
    raise UsageError(
        f"there is no lab {number}. There are: {', '.join(str(o.number) for o in labs())}."
    )
