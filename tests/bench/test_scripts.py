"""Every script in bench/ can be imported: none names what has gone."""

from __future__ import annotations

import ast
import importlib
from pathlib import Path

import pytest

SCRIPTS = sorted((Path(__file__).parents[2] / "bench").glob("*.py"))


def test_there_are_scripts():
    assert len(SCRIPTS) > 15


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_every_import_of_a_script_from_lockstep_exists(path: Path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("lockstep"):
            module = importlib.import_module(str(node.module))
            for alias in node.names:
                if not hasattr(module, alias.name):
                    importlib.import_module(f"{node.module}.{alias.name}")
