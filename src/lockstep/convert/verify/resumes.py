"""Find out how a script resumes from a checkpoint that it has written."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from lockstep.convert.verify.runs import MODULES, Run

_IMPORT = re.compile(r"^\s*(?:from|import)\s+([\w.]+)", re.MULTILINE)

_OPTION = re.compile(r"add_argument\(\s*((?:[^()]|\([^()]*\))*)\)", re.DOTALL)
_NAMED = re.compile(
    r"[\"'](--(?:resume|restore|checkpoint|ckpt|load|continue)"
    r"(?:[-_](?:from|path|file|checkpoint|ckpt|model|training|train))*)[\"']",
    re.I,
)
_LOADS = re.compile(r"torch\.load\(")
_LOOKS = re.compile(r"exists\(|is_file\(|isfile\(|glob\(")


def checkpoint_of(run: Run) -> str:
    """Return the path of the checkpoint that a run wrote last; empty if it wrote none."""
    written = [event["path"] for event in run.first.of("file") if event["names"]]
    return written[-1] if written else ""


def loads_first(run: Run) -> bool:
    """Return whether a run loaded a checkpoint before its first step."""
    return any(event["step"] == 0 for event in run.first.of("loads"))


def arguments_to_resume(script: Path, checkpoint: str) -> Sequence[str] | None:
    """Return the arguments with which a script may resume; None if it loads nothing.

    A script that looks for its checkpoint by itself needs no arguments.
    """
    texts = [path.read_text(errors="replace") for path in _files(script)]
    if not any(_LOADS.search(text) for text in texts):
        return None
    for text in texts:
        for option in _OPTION.finditer(text):
            name = _NAMED.search(option[1])
            if name is None or re.search(r"type\s*=\s*(int|float)", option[1]):
                continue
            flag = re.search(r"action\s*=\s*[\"']store_(true|false)", option[1])
            return [name[1]] if flag else [name[1], checkpoint]
    return [] if any(_LOOKS.search(text) for text in texts if _LOADS.search(text)) else None


def _files(script: Path) -> list[Path]:
    """Return a script and the files beside it that it imports."""
    found, waiting = [script], [script]
    while waiting and len(found) < MODULES:
        for name in _IMPORT.findall(waiting.pop().read_text(errors="replace")):
            inner = script.parent.joinpath(*name.strip(".").split("."))
            for path in (inner.with_suffix(".py"), inner / "__init__.py"):
                if path.is_file() and path not in found:
                    found.append(path)
                    waiting.append(path)
    return found
