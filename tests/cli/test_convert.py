"""`lockstep convert`: what it prints, writes and answers."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from lockstep.cli.convert import run


def _said(arguments: list[str], capfd: pytest.CaptureFixture[str]) -> str:
    capfd.readouterr()
    assert run(arguments) == 0
    return capfd.readouterr().out


CASES = Path(__file__).parent.parent / "cases" / "convert"


@pytest.fixture
def script(tmp_path: Path) -> Path:
    found = tmp_path / "train.py"
    found.write_text((CASES / "scripts" / "regression.py").read_text())
    return found


def test_it_says_what_it_understood_shows_the_changes_and_writes_nothing(script: Path, capfd):
    before = script.read_text()
    assert run([str(script), "--no-verify"]) == 0
    out = capfd.readouterr().out
    assert "Not proven: lockstep only read" in out
    assert "step of an optimizer" in out
    assert "\n+from parallel import " in out
    assert "parallel.py, which is new, holds the functions it imports" in out
    assert "model: DDP averages the gradients of this forward pass" in out
    assert script.read_text() == before
    assert list(script.parent.iterdir()) == [script]


def test_it_writes_to_the_given_path(script: Path, capfd):
    before, other = script.read_text(), script.parent / "out" / "ddp.py"
    other.parent.mkdir()
    assert run([str(script), "-o", str(other), "--no-verify"]) == 0
    assert f"Start it with: torchrun --nproc-per-node N {other}" in capfd.readouterr().out
    assert script.read_text() == before
    assert sorted(path.name for path in other.parent.iterdir()) == ["ddp.py", "parallel.py"]
    assert run([str(script), "--write", "--no-verify"]) == 0
    assert script.read_text() == other.read_text() != before
    assert script.with_name("parallel.py").exists()
    assert "distributed already" in _said([str(script)], capfd)


def test_a_patch_makes_the_same_files(script: Path, capfd):
    (script.parent / "data.py").write_text("SIZE = 64\n")
    patch = script.with_name("out.patch")
    assert run([str(script), "--patch", str(patch), "--no-verify"]) == 0
    assert "git -C" in capfd.readouterr().out
    subprocess.run(["git", "apply", patch.name], cwd=script.parent, check=True)
    files = {path.name: path.read_text() for path in script.parent.glob("*.py")}
    script.write_text((CASES / "scripts" / "regression.py").read_text())
    script.with_name("parallel.py").unlink()
    assert run([str(script), "--write", "--no-verify"]) == 0
    assert {path.name: path.read_text() for path in script.parent.glob("*.py")} == files


def test_a_result_is_proven_before_it_is_written(script: Path, capfd):
    marked, proven = (script.parent / name / "train.py" for name in ("marked", "proven"))
    marked.parent.mkdir()
    proven.parent.mkdir()
    assert run([str(script), "-o", str(proven), "--replicas", "2"]) == 0
    out = capfd.readouterr().out
    assert "\n  proven\n" in out
    assert "Not proven" not in out
    assert run([str(script), "-o", str(marked), "--no-verify"]) == 0
    assert marked.read_text().startswith("# lockstep convert --no-verify wrote this file")
    assert "lockstep" not in proven.read_text()


def test_a_change_that_an_option_makes_on_purpose_is_left_out_of_the_proof(script: Path, capfd):
    assert run([str(script), "--scale-batch", "--write", "--replicas", "2"]) == 0
    out = capfd.readouterr().out
    assert "  proven\n  without --scale-batch, which changes the training on purpose" in out
    assert "world" in script.read_text().lower()


def test_a_result_that_is_not_proven_is_not_written(script: Path, capfd):
    script.write_text("import sys\nsys.exit('it needs --data')\n" + script.read_text())
    assert run([str(script), "--write"]) == 1
    captured = capfd.readouterr()
    assert "it needs --data" in captured.out
    assert "is not written, because the result is not proven" in captured.err
    assert "parallel" not in script.read_text()


@pytest.mark.parametrize(
    ("first", "end"), [("#!/usr/bin/env python\n# -*- coding: utf-8 -*-\n", "\n"), ("", "\r\n")]
)
def test_the_mark_follows_the_lines_that_must_be_first(script: Path, first: str, end: str):
    text = (first + script.read_text()).replace("\n", end)
    script.write_bytes(text.encode())
    assert run([str(script), "--write", "--no-verify"]) == 0
    found = script.read_bytes().decode()
    assert found.startswith(first.replace("\n", end) + "# lockstep convert --no-verify wrote")
    assert found.count("\n") == found.count(end)


def test_a_document_has_all_of_it(script: Path, capfd):
    assert run([str(script), "--json", "--no-verify"]) == 0
    document = json.loads(capfd.readouterr().out)
    assert document["state"] == "converted"
    assert {c["name"] for c in document["changes"]} >= {"data", "model", "numbers"}
    assert document["files"][str(script)] == document["text"]
    assert len(document["files"]) == 2
    compile(document["text"], "train.py", "exec")


def test_a_refusal_says_why_and_what_to_do(capfd):
    path = next((CASES / "refused").glob("environment*.py"))
    assert run([str(path)]) == 1
    assert "was not converted: line" in capfd.readouterr().err
    assert run([str(path), "--json"]) == 1
    assert json.loads(capfd.readouterr().out)["state"] == "refused"


def test_a_script_that_is_distributed_already_is_left_alone(capfd):
    path = CASES.parent / "doctor_run" / "quiet" / "good_torchrun_tutorial.py"
    before = path.read_text()
    assert run([str(path), "--write"]) == 0
    assert "lockstep doctor" in capfd.readouterr().out
    assert path.read_text() == before


def of(arguments: list[str], text: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "lockstep", "convert", *arguments]
    return subprocess.run(command, input=text, capture_output=True, timeout=60, check=False)


def test_a_script_from_standard_input():
    done = of(["-", "--no-verify"], (CASES / "scripts" / "regression.py").read_bytes())
    assert done.returncode == 0
    assert b"+++ b/standard input" in done.stdout


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
def test_a_file_that_is_no_training_script_ends_in_one_line(
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
        (["x.py", "--no-verify", "--", "--epochs", "1"], b"--no-verify runs nothing"),
        ([], b"required: script"),
    ],
)
def test_misuse_is_refused_with_a_message(arguments: list[str], message: bytes):
    done = of(arguments)
    assert done.returncode == 2
    assert message in done.stderr


def test_a_notebook_becomes_a_script(tmp_path: Path):
    out = tmp_path / "notebook.py"
    assert run([str(CASES / "scripts" / "notebook.ipynb"), "-o", str(out), "--no-verify"]) == 0
    compile(out.read_text(), "notebook.py", "exec")


def test_torch_is_not_loaded_to_read_a_script(script: Path):
    code = (
        "import sys\n"
        "from lockstep.cli.convert import run\n"
        f"assert run([{str(script)!r}, '--no-verify']) == 0\n"
        "assert 'torch' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, timeout=60)
