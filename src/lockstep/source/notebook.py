"""Read the code cells of a notebook as one script."""

from __future__ import annotations

import ast
import json
import re
import warnings
from contextlib import suppress
from pathlib import Path

from lockstep.errors import SourceError
from lockstep.source.script import lines_of

_CELL_MAGIC = re.compile(r"\s*%%(\w+)")
_PYTHON_MAGICS = {"time", "timeit", "capture", "prun", "python", "python3"}
_LINE_MAGIC = re.compile(r"(\s*)(%|!|\?).*")
_ASSIGNED_MAGIC = re.compile(r"(\s*[\w., ]+=\s*)(!|%\w).*")
_HELP = re.compile(r"(\s*)[\w.]+\?\??\s*$")
_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"|#.*")


def code_of(path: Path, content: bytes) -> tuple[str, list[str]]:
    """Return the code of a notebook as one script; magic lines become comments."""
    try:
        cells = json.loads(content)["cells"]
        assert isinstance(cells, list)
    except (ValueError, KeyError, TypeError, AssertionError, RecursionError):
        raise SourceError(
            f"{path} is not a notebook: it is not JSON with cells. Open it in Jupyter and save it "
            "again."
        ) from None
    lines: list[str] = []
    places: list[str] = []
    for number, cell in enumerate(cells, 1):
        if not isinstance(cell, dict) or cell.get("cell_type") != "code":
            continue
        source = cell.get("source", "")
        text = source if isinstance(source, str) else "".join(map(str, source))
        # A cell with `%%time` is Python, a cell with `%%bash` is not.
        magic = _CELL_MAGIC.match(text)
        if magic is not None and magic[1] not in _PYTHON_MAGICS:
            continue
        inside = lines_of(text)
        if not _is_python(text):
            # A line that begins with % may also continue an expression.
            careful = _without_magic(inside, brackets=True)
            good = _is_python("\n".join(careful))
            inside = careful if good else _without_magic(inside, brackets=False)
        for line, content_line in enumerate(inside, 1):
            lines.append(content_line)
            places.append(f"cell {number}, line {line}")
    return "\n".join(lines) + "\n", places


def compiled(text: str) -> None:
    """Raise Python's own error if a text is not Python."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ast.parse(text)


def _is_python(text: str) -> bool:
    with suppress(SyntaxError, ValueError, RecursionError, MemoryError):
        compiled(text)
        return True
    return False


def _without_magic(lines: list[str], *, brackets: bool) -> list[str]:
    """Turn `!pip install`, `%time f()`, `files = !ls` and `f?` into Python that does nothing."""
    found = []
    depth = 0
    goes_on = False
    for line in lines:
        magic = _LINE_MAGIC.match(line) or _HELP.match(line)
        given = _ASSIGNED_MAGIC.match(line)
        if goes_on or (magic is not None and not (brackets and depth > 0)):
            # Keep a statement, since the block may hold nothing else.
            indent = magic[1] if magic is not None and not goes_on else ""
            found.append(f"# {line}" if goes_on else f"{indent}pass  # {line.strip()}")
            goes_on = line.rstrip().endswith("\\")
        elif given is not None and not (brackets and depth > 0):
            found.append(f"{given[1]}None  # {line[given.end(1) :]}")
        else:
            found.append(line)
            bare = _QUOTED.sub("", line)
            depth += sum(map(bare.count, "([{")) - sum(map(bare.count, ")]}"))
    return found
