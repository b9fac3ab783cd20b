"""Loggers of a loop: only the first replica writes, and after a kill every line is there once."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from lockstep.errors import PlanError, ReplicaDied, RunError
from programs import PLAIN, killed_after, run, written

OWN = """
class Log:
    def __call__(self, line):
        with open(FOLDER / "lines", "a") as file:
            file.write(f"{line['kind']} {line['step']} {line.get('global_batch')}\\n")
    def close(self):
        with open(FOLDER / "lines", "a") as file:
            file.write("closed\\n")
"""


def logging(folder: Path, loggers: str, body: str = PLAIN) -> Path:
    """Write a program that logs after every second step, and values of its own."""
    body = body.replace("exact=True", f"exact=True, log_every=2, loggers={loggers}")
    body += "            loop.log(own=loop.steps)\n"
    head = f"from pathlib import Path\nFOLDER = Path({str(folder)!r})\n{OWN}"
    return written(folder, head + body)


def table(out: Path) -> list[dict[str, str]]:
    with (out / "metrics.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def lines(out: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]


def test_every_line_is_logged_once_through_a_kill_and_a_resume(tmp_path: Path, monkeypatch):
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    path, out = logging(tmp_path, "['csv', 'tensorboard']"), tmp_path / "run"
    revive = killed_after(monkeypatch, 9)
    with pytest.raises(ReplicaDied):
        run(path, out, 2)
    assert len(table(out)) == len(lines(out))
    assert max(line["step"] for line in lines(out)) == 8
    revive()
    # The checkpoint is that of step 5.
    run(path, out, 1, resume=True)
    found = lines(out)
    assert [line["step"] for line in found if line["kind"] == "train"] == [2, 4, 5, 6, 8, 10]
    # The first of the second epoch was logged at step 5 too, after the checkpoint.
    assert [line["step"] for line in found if line["kind"] == "own"] == list(range(10))
    assert [(row["kind"], int(row["step"])) for row in table(out)] == [
        (line["kind"], line["step"]) for line in found
    ]
    shown = accumulator.EventAccumulator(str(out / "tensorboard")).Reload()
    assert [event.step for event in shown.Scalars("train/loss")] == [2, 4, 5, 6, 8, 10]
    assert [event.step for event in shown.Scalars("own/own")] == list(range(10))
    assert len(shown.Tensors("settings/text_summary")) == 1


def test_a_logger_of_the_program_gets_settings_and_lines_and_is_closed(tmp_path: Path):
    run(logging(tmp_path, "[Log()]"), tmp_path / "run", 2)
    found = (tmp_path / "lines").read_text().splitlines()
    assert (found[0], found[-1]) == ("settings 0 16", "closed")
    assert len(found) == len(lines(tmp_path / "run")) + 2


def test_a_logger_is_closed_after_an_error(tmp_path: Path):
    body = PLAIN.replace("loop.step(batch, loss, optimizer)", "raise SystemExit(3)")
    with pytest.raises(RunError, match="exit code 3"):
        run(logging(tmp_path, "[Log()]", body), tmp_path / "run")
    assert (tmp_path / "lines").read_text().splitlines()[-1] == "closed"


def test_a_flag_replaces_the_loggers_of_the_program(tmp_path: Path):
    run(logging(tmp_path, "[Log()]"), tmp_path / "run", loggers="csv")
    assert (tmp_path / "run" / "metrics.csv").exists()
    assert not (tmp_path / "lines").exists()


def test_an_unknown_logger_is_refused_before_the_folder_is_made(tmp_path: Path):
    with pytest.raises(PlanError, match=r"--loggers tensorbord: known are"):
        run(logging(tmp_path, "['tensorbord']"), tmp_path / "run")
    assert not (tmp_path / "run").exists()
