"""The only printer."""

from __future__ import annotations

import json
import threading

import pytest

from lockstep.console import Console, LiveProgress, Progress


def test_with_json_only_the_document_is_on_standard_output(capfd: pytest.CaptureFixture):
    console = Console(as_json=True)
    console.say("a line")
    console.warn("careful")
    console.table("title", ["", "value"], [["row", "1"]])
    console.emit({"answer": [1, 2]})
    captured = capfd.readouterr()
    assert json.loads(captured.out) == {"answer": [1, 2]}
    assert "careful" in captured.err


def test_errors_go_to_standard_error_and_brackets_stay(capfd: pytest.CaptureFixture):
    Console().error("give [red] or path[0]")
    captured = capfd.readouterr()
    assert captured.out == ""
    assert "error: give [red] or path[0]" in captured.err


def test_long_lines_are_not_broken(capfd: pytest.CaptureFixture):
    Console().say("x" * 500)
    assert "x" * 500 in capfd.readouterr().out


def records(progress: Progress) -> None:
    progress.begin(20, 0, 2)
    for step in (5, 10):
        progress.step(step)
        progress.record({"kind": "train", "step": step, "loss": 0.5, "samples_per_second": 100.0})
    progress.record({"kind": "test", "step": 10, "epoch": 1.0, "seconds": 1.0, "accuracy": 0.75})
    progress.end()


def test_in_a_log_an_epoch_is_one_line(capfd: pytest.CaptureFixture):
    records(LiveProgress(Console(), "digits"))
    lines = capfd.readouterr().out.splitlines()
    assert len(lines) == 1
    for part in ("digits", "epoch 1/2", "loss 0.5000", "accuracy 0.7500", "100 samples/s", "left"):
        assert part in lines[0]


def test_other_replicas_are_silent(capfd: pytest.CaptureFixture):
    records(Progress())
    captured = capfd.readouterr()
    assert captured.out == captured.err == ""


def test_a_download_is_reported_in_tenths(capfd: pytest.CaptureFixture):
    progress = LiveProgress(Console(), "digits")
    for done in range(0, 100_000_001, 1_000_000):
        progress.download(done, 100_000_000)
    assert len(capfd.readouterr().out.splitlines()) == 10


def test_a_still_bar_moves_without_a_thread(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("FORCE_COLOR", "1")  # as on a terminal
    console = Console()
    progress = LiveProgress(console, "bench", still=True)
    before = threading.active_count()
    progress.begin(2, 0, 1)
    assert console.rich.is_terminal
    progress.step(1)
    assert threading.active_count() == before
    progress.end()
