"""Tell a program with a training loop of its own from a file with a recipe, by reading it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from pathlib import Path


def is_program(text: str) -> bool:
    """Tell whether `text` names a file that trains by itself, rather than one with a recipe."""
    path = Path(text)
    if path.suffix != ".py" or not path.is_file():
        return False
    try:
        tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError):
        return False
    bound: set[str] = set()
    loops = False
    for node in ast.walk(tree):
        if isinstance(node, ast.alias):
            bound.add(node.asname or node.name)
            loops = loops or node.name == "Loop"
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            bound.add(node.id)
        elif isinstance(node, ast.Attribute) and node.attr == "Loop":
            loops = True
    return loops and "recipe" not in bound


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
