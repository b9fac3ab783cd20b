"""The examples in docstrings are true."""

from __future__ import annotations

import doctest
from importlib import import_module
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src"
WITH_EXAMPLES = sorted(p for p in SOURCE.rglob("*.py") if ">>> " in p.read_text())


def name_of(path: Path) -> str:
    return ".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__")


@pytest.mark.parametrize("name", [name_of(path) for path in WITH_EXAMPLES])
def test_examples_in_docstrings(name: str):
    found = doctest.testmod(import_module(name))
    assert found.attempted
    assert not found.failed
