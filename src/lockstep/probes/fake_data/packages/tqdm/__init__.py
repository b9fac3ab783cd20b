"""A progress bar that is not drawn."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import Any, Self


class tqdm:
    """Iterates, and takes what is said to a bar."""

    def __init__(
        self,
        iterable: Iterable[Any] | None = None,
        desc: str | None = None,
        total: float | None = None,
        *args: Any,
        initial: int = 0,
        **kwargs: Any,
    ) -> None:
        self.iterable, self.desc, self.n = iterable, desc, initial
        self.total = len(self) if total is None and hasattr(iterable, "__len__") else total

    def __iter__(self) -> Iterator[Any]:
        for item in self.iterable or ():
            yield item
            self.n += 1

    def __len__(self) -> int:
        iterable: Any = self.iterable
        return int(self.total or 0) if iterable is None else len(iterable)

    def __bool__(self) -> bool:
        return True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def update(self, n: float = 1) -> None:
        """Go on."""
        self.n += int(n)

    def reset(self, total: float | None = None) -> None:
        """Begin anew."""
        self.n = 0

    def _nothing(self, *args: Any, **kwargs: Any) -> None:
        """Nothing is drawn."""

    set_description = set_description_str = set_postfix = set_postfix_str = _nothing
    refresh = clear = close = display = unpause = _nothing

    @classmethod
    def write(cls, s: str, file: Any = None, end: str = "\n", nolock: bool = False) -> None:
        """A line beside the bar."""
        # The script's words, not ours.
        (file or sys.stdout).write(s + end)

    @classmethod
    def pandas(cls, *args: Any, **kwargs: Any) -> None:
        """No bar there either."""


def trange(*args: int, **kwargs: Any) -> tqdm:
    """Over numbers."""
    return tqdm(range(*args), **kwargs)


tqdm_notebook, tnrange = tqdm, trange
