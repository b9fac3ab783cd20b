"""The map in the package's docstring: complete, and read from top to bottom."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from lockstep import source

FILES = {path.stem: path for path in Path(source.__file__).parent.glob("[!_]*.py")}
ORDER = re.findall(r"^ {4}\w* +(\w+)  ", source.__doc__ or "", re.M)


def test_every_module_is_on_the_map():
    assert sorted(ORDER) == sorted(FILES)


@pytest.mark.parametrize("name", FILES)
def test_a_module_imports_only_from_those_above(name: str):
    nodes = [n for n in ast.walk(ast.parse(FILES[name].read_text())) if type(n) is ast.ImportFrom]
    own = [(n.module or "").removeprefix("lockstep.source.") for n in nodes]
    assert {other for other in own if other in FILES} <= set(ORDER[: ORDER.index(name)])
