"""A progress bar that is not drawn."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import Any, Self


class tqdm:
    """Iterates, and accepts every call that a bar accepts."""

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
        """Count `n` more."""
        self.n += int(n)

    def reset(self, total: float | None = None) -> None:
        """Count from 0 again."""
        self.n = 0

    def _nothing(self, *args: Any, **kwargs: Any) -> None:
        """Do nothing: there is no bar to change."""

    set_description = set_description_str = set_postfix = set_postfix_str = _nothing
    refresh = clear = close = display = unpause = _nothing

    @classmethod
    def write(cls, s: str, file: Any = None, end: str = "\n", nolock: bool = False) -> None:
        """Write a line of the script's, as it would stand beside the bar."""
        (file or sys.stdout).write(s + end)

    @classmethod
    def pandas(cls, *args: Any, **kwargs: Any) -> None:
        """Do nothing: pandas works without a bar."""


def trange(*args: int, **kwargs: Any) -> tqdm:
    """Return a bar over `range(*args)`."""
    return tqdm(range(*args), **kwargs)


tqdm_notebook, tnrange = tqdm, trange
for _name in ("auto", "autonotebook", "notebook", "std"):
    # All parts of the library hold the same bar.
    globals()[_name] = sys.modules[f"{__name__}.{_name}"] = sys.modules[__name__]
