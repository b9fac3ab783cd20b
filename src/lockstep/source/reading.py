"""Read a file as a script, or raise a SourceError with the reason."""

from __future__ import annotations

import re
import tokenize
from io import BytesIO
from pathlib import Path

import libcst as cst

from lockstep.errors import SourceError
from lockstep.source.notebook import code_of, compiled
from lockstep.source.script import Script, lines_of

MOST_BYTES = 2_000_000
"""The largest file that a person would write by hand."""


def read_script(path: Path) -> Script:
    """Read a file, or raise a SourceError with the reason."""
    try:
        with path.open("rb") as file:
            content = file.read(MOST_BYTES + 1)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise SourceError(
            f"{path} cannot be read: {why}. Check its name and permissions, or leave it out."
        ) from None
    if len(content) > MOST_BYTES:
        raise SourceError(
            f"{path} has more than {MOST_BYTES / 1e6:g} MB, more than a person writes. Name the "
            "script itself."
        )
    if path.suffix == ".ipynb":
        text, places = code_of(path, content)
        return parse(path, text, places)
    script = parse(path, decoded(path, content))
    script.encoding = tokenize.detect_encoding(BytesIO(content).readline)[0]
    return script


def decoded(path: Path, content: bytes) -> str:
    """Return the text, in the encoding that its first lines name."""
    try:
        encoding, _ = tokenize.detect_encoding(BytesIO(content).readline)
        return content.decode(encoding)
    except (SyntaxError, UnicodeDecodeError, LookupError) as error:
        raise SourceError(
            f"{path} is not text in {getattr(error, 'encoding', 'a known encoding')}. Save it as "
            "UTF-8, or name its encoding in the first line."
        ) from None


def parse(path: Path, text: str, places: list[str] | None = None) -> Script:
    """Return a script from its text."""
    trouble = _trouble(path, text)
    try:
        return Script(path, text, cst.parse_module(text), places)
    except cst.ParserSyntaxError as error:
        # Prefer Python's own message, since LibCST does not always name the line.
        line = trouble.lineno if trouble and trouble.lineno else error.editor_line
        why = f" ({trouble.msg.rstrip('.')})" if trouble else ""
        where = places[line - 1] if places and line <= len(places) else f"line {line}"
        lines = lines_of(text)
        source = lines[line - 1].strip()[:80] if line <= len(lines) else ""
        old = _PYTHON_2.match(source)
        todo = " It looks like Python 2: convert it to Python 3 first." if old else " Fix it first."
        raise SourceError(f"{path}, {where}: not Python: {source!r}{why}.{todo}") from None
    except RecursionError:
        raise _too_deep(path) from None


_PYTHON_2 = re.compile(r"(print|exec)\s+[^(=\s]|except\s+[\w.]+\s*,|raise\s+\w+\s*,|.*\b0\d+\b")


def _too_deep(path: Path) -> SourceError:
    return SourceError(f"{path} is nested too deeply to be read. Leave it out, or take it apart.")


def _trouble(path: Path, text: str) -> SyntaxError | None:
    """Return Python's complaint about a text; LibCST's parser may crash where Python refuses."""
    if "\0" in text:
        line = text[: text.index("\0")].count("\n") + 1
        raise SourceError(
            f"{path}, line {line}: a null byte, so this is no script. Leave it out, or save it as "
            "UTF-8 text."
        )
    try:
        compiled(text)
    except SyntaxError as error:
        if "too many nested" in error.msg or "too many indentation" in error.msg.lower():
            raise _too_deep(path) from None
        return error
    except (RecursionError, MemoryError):
        raise _too_deep(path) from None
    except ValueError as error:
        raise SourceError(f"{path} is not Python: {error}. Save it as UTF-8 text.") from None
    return None
