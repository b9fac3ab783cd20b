"""The program of the guide runs as it stands, started in each of the ways that the guide names."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def program(tmp_path: Path) -> Path:
    text = (ROOT / "docs" / "guides" / "loop.md").read_text()
    snippet = re.search(r"<!-- run: loop -->\n```python\n(.*?)```", text, re.DOTALL)
    assert snippet
    path = tmp_path / "train.py"
    path.write_text(snippet[1])
    return path


def start(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, *command], capture_output=True, text=True, timeout=120, cwd=folder, env=env
    )
    assert done.returncode == 0, done.stderr
    return done


def hashes(folder: Path) -> set[str]:
    found = [json.loads(p.read_text()) for p in folder.glob("runs/*/run.json")]
    assert all(summary["status"] == "finished" for summary in found)
    return {summary["weights_sha256"] for summary in found}


def test_it_runs_alone_and_with_lockstep_train(program: Path, tmp_path: Path):
    start(tmp_path, "train.py")
    lockstep = ("-m", "lockstep", "train", "train.py", "--replicas", "2", "--out", "runs/a")
    start(tmp_path, *lockstep)
    assert len(list(tmp_path.glob("runs/*"))) == 2
    assert len(hashes(tmp_path)) == 1
    assert (tmp_path / "runs" / "a" / "report.html").exists()


@pytest.mark.slow
def test_it_runs_under_torchrun(program: Path, tmp_path: Path):
    start(tmp_path, "train.py")
    launcher = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")
    start(tmp_path, *launcher, "train.py")
    assert len(list(tmp_path.glob("runs/*"))) == 2
    assert len(hashes(tmp_path)) == 1


def test_two_runs_in_the_same_second_have_folders_of_their_own(tmp_path: Path):
    from lockstep.engine.run.run_folder import new_folder

    assert len({new_folder(tmp_path, "same") for _ in range(5)}) == 5


def test_arguments_after_two_dashes_are_the_program_s(tmp_path: Path):
    body = "import sys, lockstep\nassert sys.argv[1:] == ['--width', '64'], sys.argv\n"
    body += "with lockstep.Loop(global_batch=4) as loop:\n    assert loop.settings.seed == 7\n"
    (tmp_path / "train.py").write_text(body)
    start(tmp_path, "-m", "lockstep", "train", "train.py", "--seed", "7", "--", "--width", "64")


def test_sets_of_strings_have_one_order_in_every_run(tmp_path: Path):
    body = "import lockstep\nwith lockstep.Loop(global_batch=4) as loop:\n"
    body += "    loop.say(list({chr(97 + n) * 3 for n in range(20)}))\n"
    (tmp_path / "train.py").write_text(body)
    commands = [("-m", "lockstep", "train", "train.py", "--out", f"runs/{n}") for n in range(2)]
    said = [start(tmp_path, *command).stdout.splitlines()[0] for command in commands]
    assert said[0] == said[1]
    assert "'aaa'" in said[0]
