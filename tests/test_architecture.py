"""The map of the code, enforced: a package imports only from rows above its own."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "lockstep"
ROWS = [
    ["errors", "world", "console", "keys", "rounding"],
    ["processes"],
    ["data", "models", "layers", "scaling", "source"],
    ["engine", "predict", "probes"],
    ["doctor", "cluster", "report"],
    ["convert", "bench", "tune", "training", "audit"],
    ["labs", "assess", "testing"],
    ["cli"],
]
READERS = ("source", "doctor", "convert")
ROW = {name: number for number, row in enumerate(ROWS) for name in row}
FILES = sorted(p for p in SOURCE.rglob("*.py") if p.parent != SOURCE or p.stem in ROW)


def package(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imports(path: Path) -> set[str]:
    """The lockstep packages that a file imports, wherever in the file."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module == "lockstep":
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("lockstep."):
            found.add((node.module or "").split(".")[1])
        elif isinstance(node, ast.Import):
            found |= {a.name.split(".")[1] for a in node.names if a.name.startswith("lockstep.")}
    return found


def test_a_package_imports_only_from_rows_above():
    for path in FILES:
        own = package(path)
        assert own in ROW, f"{own} is not on the map"
        for other in imports(path) - {own}:
            assert ROW[other] < ROW[own], f"{path}: {own} must not import {other}"


def test_no_file_is_longer_than_400_lines():
    lengths = {path: len(path.read_text().splitlines()) for path in FILES}
    assert not {path: length for path, length in lengths.items() if length > 400}


def test_there_is_no_attic():
    assert not [p for p in SOURCE.rglob("*") if p.stem in ("utils", "util", "helpers", "misc")]


def calls(path: Path) -> set[str]:
    tree = ast.parse(path.read_text())
    names = {ast.unparse(node) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    names |= {
        n.func.id
        for n in ast.walk(tree)
        if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)
    }
    return names


def test_only_world_reads_the_environment_and_only_console_prints():
    for path in FILES:
        used = calls(path)
        if path.stem != "world":
            assert not used & {"os.environ", "os.getenv", "os.putenv"}, path
        if path.stem != "console":
            assert not used & {"print", "sys.stdout.write"}, path


STARTS = {
    *("os.fork", "os.forkpty", "os.system", "os.popen", "os.posix_spawn", "pty.fork"),
    *(f"os.exec{how}" for how in ("v", "ve", "vp", "vpe", "l", "le", "lp", "lpe")),
    *(f"subprocess.{how}" for how in ("Popen", "run", "call", "check_call", "check_output")),
    *("multiprocessing.Process", "mp.Process", "mp.spawn", "multiprocessing.spawn"),
}


def test_only_processes_starts_processes():
    # A bench asks the machine about itself, with programs such as nvidia-smi.
    for path in FILES:
        if package(path) not in ("processes", "console") and path.name != "machine.py":
            assert not calls(path) & STARTS, path


def test_torch_distributed_lives_in_the_engine():
    # And in the bench: the loops that others write by hand are written by hand there.
    for path in FILES:
        # Who reads scripts speaks of it, and imports no torch at all.
        if package(path) not in ("engine", "processes", "bench", "probes", *READERS):
            assert "torch.distributed" not in path.read_text(), path


@pytest.mark.parametrize("name", READERS)
def test_scripts_are_read_without_torch(name: str):
    if not (SOURCE / name).exists():
        return
    code = f"import sys, lockstep.{name}; assert not {{'torch', 'numpy'}} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("statement", ["import lockstep", "import lockstep.cli"])
def test_importing_does_not_load_torch(statement: str):
    code = f"import sys; {statement}; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_every_public_name_can_be_loaded():
    import lockstep

    for name in lockstep.__all__:
        assert getattr(lockstep, name).__doc__
    with pytest.raises(AttributeError):
        _ = lockstep.nothing


def test_the_training_loop_fits_on_one_page():
    assert len((SOURCE / "engine" / "loop.py").read_text().splitlines()) <= 66
