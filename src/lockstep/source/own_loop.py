"""Tell a program with a training loop of its own from a file with a recipe, by reading it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple


def is_program(text: str) -> bool:
    """Tell whether `text` names a file that trains by itself, rather than one with a recipe.

    The loop may be in a module that the file imports from its own folder.
    """
    path = Path(text)
    if path.suffix != ".py" or not path.is_file():
        return False
    main = _read(path)
    if main is None or "recipe" in main.bound:
        return False
    seen, waiting = {path.resolve()}, [main]
    while waiting:
        file = waiting.pop()
        if file.loops:
            return True
        for module in file.modules:
            found = _file_of(module, path.parent)
            if found is not None and found.resolve() not in seen:
                seen.add(found.resolve())
                if (read := _read(found)) is not None:
                    waiting.append(read)
    return False


class _File(NamedTuple):
    """The relevant facts about one file of a program."""

    bound: set[str]
    """The names that it binds."""
    loops: bool
    """Whether it names a Loop."""
    modules: list[str]
    """The modules that it may import, as paths with dots."""


def _read(path: Path) -> _File | None:
    """Read a file; return None if it is not Python."""
    try:
        tree = ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return None
    bound: set[str] = set()
    modules: list[str] = []
    loops = False
    for node in ast.walk(tree):
        if isinstance(node, ast.alias):
            bound.add(node.asname or node.name)
            loops = loops or node.name == "Loop"
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            bound.add(node.id)
        elif isinstance(node, ast.Attribute) and node.attr == "Loop":
            loops = True
        if isinstance(node, ast.Import):
            modules += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            # In a package, `from . import part` is relative to it: its name is tried as it is.
            base = node.module or ""
            modules += [base, *(f"{base}.{alias.name}".lstrip(".") for alias in node.names)]
    return _File(bound, loops, modules)


def _file_of(module: str, folder: Path) -> Path | None:
    """Return the file of a module in the folder of a program, if it is there."""
    place = folder.joinpath(*module.split("."))
    every = (place.with_suffix(".py"), place / "__init__.py")
    return next((file for file in every if module and file.is_file()), None)


_SIZE = re.compile(r"WORLD_SIZE|get_world_size\s*\(|\bloop\.replicas\b")


def reads_of_world_size(files: Iterable[Path]) -> list[str]:
    """Return the lines of a program that ask for the number of replicas."""
    found = []
    for path in files:
        try:
            lines = path.read_text().splitlines()
        except (OSError, UnicodeDecodeError):
            continue
        for number, line in enumerate(lines, 1):
            if _SIZE.search(line.split("#")[0]):
                found.append(f"line {number} of {path.name}: {line.strip()}")
    return found
