"""docs/architecture.md draws the layers that the tests enforce, and names files that exist."""

from __future__ import annotations

import re
from pathlib import Path

from test_architecture import ROWS

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "architecture.md").read_text()
PLACEHOLDER = re.compile(r"NAME|FILE")


def drawing() -> list[list[str]]:
    """Return the packages of each row in the drawing of the layers."""
    text = re.search(r"## Layers\n+```\n(.*?)```", PAGE, re.DOTALL)
    assert text
    rows = [line.strip() for line in text[1].splitlines() if "──" not in line]
    return [re.split(r" {4,}", row)[0].split() for row in rows]


def test_the_drawing_has_the_rows_that_are_enforced():
    assert [set(row) for row in drawing()] == [set(row) for row in ROWS]


def test_every_package_is_explained():
    explained = re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE)
    assert explained == [name for row in drawing() for name in row]


def test_every_path_on_the_page_exists():
    paths = re.findall(r"`([\w/.]+/[\w/.]*)`", PAGE)
    paths += re.findall(r"^  ([a-z_]+/[\w/.]*)  ", PAGE, re.MULTILINE)
    kept = [path for path in paths if not PLACEHOLDER.search(path)]
    assert len(kept) > 30
    missing = [
        path
        for path in kept
        if not any((root / path).exists() for root in (ROOT, ROOT / "src" / "lockstep"))
    ]
    assert missing == []
