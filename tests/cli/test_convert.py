"""`lockstep convert`: what it prints, writes and answers."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from lockstep.cli.convert import run

CASES = Path(__file__).parent.parent / "cases" / "convert"


@pytest.fixture
def script(tmp_path: Path) -> Path:
    found = tmp_path / "train.py"
    found.write_text((CASES / "scripts" / "regression.py").read_text())
    return found


def test_it_says_what_it_understood_shows_the_changes_and_writes_nothing(script: Path, capfd):
    before = script.read_text()
    assert run([str(script)]) == 0
    out = capfd.readouterr().out
    assert "optimizer Adam" in out
    assert "\n+import torch.distributed as dist\n" in out
    assert "wrap: model is ready here: DDP averages its gradients" in out
    assert script.read_text() == before
    assert list(script.parent.iterdir()) == [script]


def test_it_writes_where_it_is_told_to(script: Path, capfd):
    before, other = script.read_text(), script.with_name("ddp.py")
    assert run([str(script), "-o", str(other)]) == 0
    assert "torchrun --nproc-per-node N" in capfd.readouterr().out
    assert script.read_text() == before
    assert run([str(script), "--write"]) == 0
    assert script.read_text() == other.read_text() != before


def test_a_document_has_all_of_it(script: Path, capfd):
    assert run([str(script), "--json"]) == 0
    document = json.loads(capfd.readouterr().out)
    assert document["state"] == "converted"
    assert {c["name"] for c in document["changes"]} >= {"process_group", "sampler", "wrap"}
    compile(document["text"], "train.py", "exec")


def test_what_is_refused_says_why_and_what_to_do(capfd):
    path = next((CASES / "refused").glob("environment*.py"))
    assert run([str(path)]) == 1
    assert "was not converted: line" in capfd.readouterr().err
    assert run([str(path), "--json"]) == 1
    assert json.loads(capfd.readouterr().out)["state"] == "refused"


def test_what_is_distributed_already_is_left_alone(capfd):
    path = CASES.parent / "doctor_run" / "quiet" / "good_torchrun_tutorial.py"
    before = path.read_text()
    assert run([str(path), "--write"]) == 0
    assert "lockstep doctor" in capfd.readouterr().out
    assert path.read_text() == before


def of(arguments: list[str], text: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "lockstep", "convert", *arguments]
    return subprocess.run(command, input=text, capture_output=True, timeout=60, check=False)


def test_a_script_from_standard_input():
    done = of(["-"], (CASES / "scripts" / "regression.py").read_bytes())
    assert done.returncode == 0
    assert b"+++ standard input" in done.stdout


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"def f(:\n", b"not Python"),
        (b"print 'old'\n", b"Python 2"),
        (b"x = '\xff\xfe'\n", b"not text in"),
        (b"x = 1\n", b"was not converted"),
        (b"", b"was not converted"),
    ],
)
def test_what_is_no_training_script_ends_in_one_line(
    tmp_path: Path, content: bytes, message: bytes
):
    path = tmp_path / "x.py"
    path.write_bytes(content)
    done = of([str(path), "--write"])
    assert done.returncode in (1, 2)
    assert message in done.stderr
    assert b"Traceback" not in done.stderr
    assert path.read_bytes() == content


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["missing.py"], b"cannot be read"),
        (["x.py", "--write", "-o", "y.py"], b"give one of them"),
        (["x.ipynb", "--write"], b"write a script with -o"),
        (["-", "--write"], b"give -o"),
        ([], b"required: script"),
    ],
)
def test_misuse_is_said(arguments: list[str], message: bytes):
    done = of(arguments)
    assert done.returncode == 2
    assert message in done.stderr


def test_a_notebook_becomes_a_script(tmp_path: Path):
    out = tmp_path / "notebook.py"
    assert run([str(CASES / "scripts" / "notebook.ipynb"), "-o", str(out)]) == 0
    compile(out.read_text(), "notebook.py", "exec")


def test_torch_is_not_loaded(script: Path):
    code = (
        "import sys\n"
        "from lockstep.cli.convert import run\n"
        f"assert run([{str(script)!r}]) == 0\n"
        "assert 'torch' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, timeout=60)
