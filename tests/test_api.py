"""The public API: one list of names, and types that find a user's mistakes."""

from __future__ import annotations

import ast
import importlib
import os
import re
import subprocess
import sys
from pathlib import Path
from types import FunctionType
from typing import get_type_hints

import pytest

import lockstep

ROOT = Path(__file__).parent.parent
PROGRAMS = ROOT / "tests" / "cases" / "typing"
GROUPS = [
    *("augment", "data", "layers", "metrics", "models", "noise", "optimizers", "recipes", "rules"),
    *("schedules", "testing"),
]


def imported_for_type_checkers() -> set[tuple[str, str]]:
    """(module, name) of each import under `if TYPE_CHECKING` in lockstep/__init__.py."""
    tree = ast.parse((ROOT / "src" / "lockstep" / "__init__.py").read_text())
    block = next(
        n for n in tree.body if isinstance(n, ast.If) and ast.unparse(n.test) == "TYPE_CHECKING"
    )
    found = set()
    for node in block.body:
        assert isinstance(node, ast.ImportFrom)
        for alias in node.names:
            # Without `as`, a strict type checker does not export the name.
            assert alias.asname == alias.name
            found.add((node.module or "", alias.name))
    return found


def test_type_checkers_and_programs_see_the_same_names():
    at_run_time = {("lockstep", name) for name in lockstep._MODULES}
    at_run_time |= {(home, name) for name, home in lockstep._HOMES.items()}
    assert imported_for_type_checkers() == at_run_time
    assert lockstep.__all__ == sorted(name for _, name in at_run_time)


@pytest.mark.parametrize("group", GROUPS)
def test_a_group_documents_each_of_its_names(group: str):
    module = importlib.import_module(f"lockstep.{group}")
    assert module is getattr(lockstep, group)
    assert module.__all__ == sorted(module.__all__)
    for name in module.__all__:
        value = getattr(module, name)
        if callable(value) and name != "Schedule":
            assert value.__doc__, name


def test_the_first_screen_of_names_is_short():
    assert set(lockstep._MODULES) == {*GROUPS, "errors"}
    assert len(lockstep._HOMES) <= 10


def test_the_options_of_train_are_those_of_a_job():
    from lockstep.engine.recipe.job import Job
    from lockstep.training import Options

    explicit = {"recipe", "out", "replicas", "exact", "resume", "source", "detail"}
    job = {name: kind for name, kind in get_type_hints(Job).items() if name not in explicit}
    assert get_type_hints(Options) == job


def test_the_reference_has_a_page_for_each_module_and_an_entry_for_each_name():
    pages = ROOT / "docs" / "api"
    assert {path.stem for path in pages.glob("*.md")} == {"lockstep", "options", *lockstep._MODULES}
    listed = re.findall(r"^::: lockstep\.(\w+)$", (pages / "lockstep.md").read_text(), re.MULTILINE)
    assert set(listed) == set(lockstep._HOMES)
    for name in ("data", "models"):
        # Some functions share their name with their file, which hides them from the generator.
        page = (pages / f"{name}.md").read_text()
        module = getattr(lockstep, name)
        for function in (f for f in module.__all__ if getattr(module, f).__class__ is FunctionType):
            if function not in ("make_loader", *lockstep.augment.__all__):
                assert re.search(rf"(- |\.){function}$", page, re.MULTILINE), function


@pytest.fixture(scope="module")
def complaints() -> dict[str, set[int]]:
    """The lines that mypy --strict complains about, by program; one run for all of them."""
    programs = sorted(PROGRAMS.glob("*.py"))
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file=", "--no-error-summary"]
    # As if lockstep were installed: only the program's own lines count.
    command += ["--follow-imports=silent"]
    # Without its cache if mypy crashes, as it does on a cache that another process is writing.
    for cache in (str(ROOT / ".mypy_cache" / "programs"), os.devnull):
        done = subprocess.run(
            [*command, "--cache-dir", cache, *map(str, programs)],
            capture_output=True,
            text=True,
            timeout=300,
            cwd=ROOT,
            env={**os.environ, "MYPYPATH": str(ROOT / "src")},
        )
        if done.returncode != 2:
            break
    assert done.returncode == 1, done.stdout + done.stderr
    found: dict[str, set[int]] = {path.name: set() for path in programs}
    for line in done.stdout.splitlines():
        place = re.match(r"(.+?):(\d+): error: ", line)
        if place:
            found[Path(place[1]).name].add(int(place[2]))
    return found


def test_a_correct_program_has_no_type_error(complaints: dict[str, set[int]]):
    assert complaints["correct.py"] == set()


def test_each_mistake_of_a_program_is_a_type_error(complaints: dict[str, set[int]]):
    lines = (PROGRAMS / "mistakes.py").read_text().splitlines()
    marked = {n for n, line in enumerate(lines, 1) if line.endswith("# mistake")}
    assert len(marked) == 19
    assert complaints["mistakes.py"] == marked
