"""report.html of a program that python or torchrun started."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from programs import PLAIN, run, written

NAMED = PLAIN.replace("exact=True", "exact=True, quiet=True, out='run'")
TORCHRUN = ("-m", "torch.distributed.run", "--standalone")


def started(folder: Path, body: str, *launcher: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *launcher, str(written(folder, body))]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=folder)


def test_python_writes_a_report(tmp_path: Path):
    done = started(tmp_path, NAMED)
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "run" / "report.html").read_text()
    assert "report of a lockstep run" in page
    assert "SHA-256 of the weights" in page


@pytest.mark.slow
def test_torchrun_writes_one_report(tmp_path: Path):
    done = started(tmp_path, NAMED, *TORCHRUN, "--nproc-per-node=2")
    assert done.returncode == 0, done.stderr
    assert "SHA-256 of the weights" in (tmp_path / "run" / "report.html").read_text()


def test_a_program_that_fails_has_a_report_with_the_reason(tmp_path: Path):
    body = NAMED.replace("loop.step(batch, loss, optimizer)", "raise ValueError('no tea')")
    done = started(tmp_path, body)
    assert done.returncode == 1
    assert "no tea" in done.stderr
    assert "no tea" in (tmp_path / "run" / "report.html").read_text()


def test_lockstep_train_leaves_the_report_to_the_command(tmp_path: Path):
    run(written(tmp_path, PLAIN), tmp_path / "run")
    assert not (tmp_path / "run" / "report.html").exists()
