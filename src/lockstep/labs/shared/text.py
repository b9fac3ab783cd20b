"""The prose of a lab: `text.md` beside its notebook, cut into named sections."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

_HEAD = re.compile(r"^<!-- (.+) -->\n", re.M)
_GAP = re.compile(r"@(\w+)@")


@cache
def sections(path: Path) -> dict[str, str]:
    """Return the sections of a file by the names in the comments above them."""
    _, *parts = _HEAD.split(path.read_text("utf-8"))
    return {name: text.strip() for name, text in zip(parts[::2], parts[1::2], strict=True)}


def filled(text: str, values: dict[str, Any]) -> str:
    """Replace each `@name@` by its value.

    >>> filled("@count@ images on @device@", {"count": 5, "device": "cpu"})
    '5 images on cpu'
    """
    gaps = set(_GAP.findall(text))
    assert gaps == set(values), f"the text needs {sorted(gaps)}, given are {sorted(values)}"
    return _GAP.sub(lambda gap: str(values[gap[1]]), text)
