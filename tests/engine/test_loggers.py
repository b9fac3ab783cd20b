"""Loggers of recipes: what metrics.jsonl gets goes to others, too; after a crash each line once."""

from __future__ import annotations

import csv
import os
import re
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import lockstep
from lockstep.engine.run.loggers import LOGGERS
from lockstep.engine.run.loggers.csv import Csv
from lockstep.engine.run.open_loggers import checked
from lockstep.engine.run.record import Record
from lockstep.engine.run.run_folder import RunFolder
from lockstep.errors import PlanError, ReplicaDied, RunError
from replicas import lockstep as command
from replicas import small, train


def rows(folder: Path) -> list[dict[str, str]]:
    with (folder / "metrics.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def curves(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """Return what TensorBoard shows: (step, value) of each curve."""
    event_accumulator = pytest.importorskip(
        "tensorboard.backend.event_processing.event_accumulator"
    )
    found = event_accumulator.EventAccumulator(str(folder / "tensorboard")).Reload()
    tags = found.Tags()["scalars"]
    return {tag: [(event.step, event.value) for event in found.Scalars(tag)] for tag in tags}


def test_every_logger_has_a_file_of_its_own():
    assert set(LOGGERS) == {"csv", "tensorboard", "mlflow", "wandb"}


def test_names_and_functions_are_accepted():
    assert checked("csv") == checked(["csv"]) == ("csv",)
    assert checked("") == ()
    assert checked([print]) == (print,)


def test_a_name_that_is_unknown_is_refused_before_training(tmp_path: Path):
    with pytest.raises(PlanError, match=r"--loggers paper: known are .*csv.*tensorboard"):
        train(small(), tmp_path / "run", loggers=["csv", "paper"])
    assert not (tmp_path / "run").exists()


def test_a_package_that_is_missing_is_refused_with_what_to_type(monkeypatch, capfd):
    monkeypatch.setattr("lockstep.engine.run.loggers.choice.find_spec", lambda name: None)
    assert command(monkeypatch, "train", "digits", "--loggers", "csv,wandb") == 2
    assert "Type: pip install wandb" in re.sub(r"\s+", " ", capfd.readouterr().err)


def test_a_folder_with_the_name_of_a_package_is_not_the_package(tmp_path: Path, monkeypatch):
    (tmp_path / "wandb_that_is_nowhere").mkdir()
    monkeypatch.syspath_prepend(str(tmp_path))
    assert not replace(LOGGERS["wandb"], package="wandb_that_is_nowhere").is_installed
    assert LOGGERS["csv"].is_installed


def test_something_that_cannot_be_called_is_refused():
    with pytest.raises(PlanError, match=r"holds a int.*def log\(line\)"):
        checked([3])  # type: ignore[list-item]


def test_a_column_that_appears_later_is_empty_before(tmp_path: Path):
    folder, log = RunFolder(tmp_path), Csv(tmp_path)
    folder.listeners.append(log)
    log({"kind": "settings", "step": 0})
    folder.log(kind="train", step=1, loss=0.5)
    folder.log(kind="test", step=1, accuracy=0.25, text='a "quoted", text')
    folder.log(kind="train", step=2, loss=float("nan"))
    found = rows(tmp_path)
    assert [row["loss"] for row in found] == ["0.5", "", ""]
    assert [row["accuracy"] for row in found] == ["", "0.25", ""]
    assert found[1]["text"] == 'a "quoted", text'


def test_a_recipe_logs_the_same_lines_everywhere_once(tmp_path: Path):
    run = lockstep.train(
        small(), replicas=2, out=tmp_path / "run", loggers="csv,tensorboard", quiet=True
    )
    lines = run.history()
    assert [row["kind"] for row in rows(run.folder)] == [line["kind"] for line in lines]
    assert [float(row["seconds"]) for row in rows(run.folder)] == [x["seconds"] for x in lines]
    tested = [(x["step"], pytest.approx(x["accuracy"])) for x in lines if x["kind"] == "test"]
    assert curves(run.folder)["test/accuracy"] == tested
    assert len(list((run.folder / "tensorboard").iterdir())) == 1


def test_the_command_takes_names_of_loggers(tmp_path: Path, monkeypatch, capfd):
    out = tmp_path / "run"
    arguments = ["--epochs", "2", "--device", "cpu", "--loggers", "csv", "--out", str(out)]
    assert command(monkeypatch, "train", "line", *arguments) == 0
    assert len(rows(out)) == len(RunFolder(out).metrics())


def test_a_recipe_that_was_killed_logs_each_line_once(tmp_path: Path, monkeypatch):
    pytest.importorskip("tensorboard")
    plain = Record.after

    def killed(self: Record, *arguments: Any) -> None:
        plain(self, *arguments)
        if self.position.done == 6:
            # The second epoch has begun, and its first lines are logged.
            self.folder.log(kind="train", step=6, loss=9.0)
            self.checkpoints.finish()
            os.kill(os.getpid(), signal.SIGKILL)

    monkeypatch.setattr(Record, "after", killed)
    options = {"loggers": ("csv", "tensorboard"), "exact": True}
    with pytest.raises(ReplicaDied):
        train(small(), tmp_path, **options)
    assert rows(tmp_path)[-1]["loss"] == "9.0"
    monkeypatch.setattr(Record, "after", plain)
    train(small(), tmp_path, resume=True, **options)
    lines = RunFolder(tmp_path).metrics()
    assert [int(row["step"]) for row in rows(tmp_path)] == [line["step"] for line in lines]
    trained = [(x["step"], pytest.approx(x["loss"])) for x in lines if x["kind"] == "train"]
    assert curves(tmp_path)["train/loss"] == trained


def test_a_function_gets_the_settings_then_every_line_and_is_closed_after_an_error(tmp_path: Path):
    class Log:
        def __call__(self, line: dict[str, Any]) -> None:
            with (tmp_path / "lines").open("a") as file:
                file.write(f"{line['kind']} {line['step']} {line.get('seed')}\n")
            if line["kind"] == "test":
                raise ValueError("the disk is full")

        def close(self) -> None:
            (tmp_path / "closed").touch()

    with pytest.raises(RunError, match=r"the logger Log raised ValueError: the disk is full"):
        train(small(), tmp_path / "run", 2, loggers=[Log()])
    lines = (tmp_path / "lines").read_text().splitlines()
    assert lines[0] == f"settings 0 {small().seed}"
    assert lines[1].startswith("train ")
    assert (tmp_path / "closed").exists()


def test_mlflow_keeps_a_run_with_each_line_once(tmp_path: Path, monkeypatch):
    pytest.importorskip("mlflow")
    from mlflow.tracking import MlflowClient

    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"file:{tmp_path}/mlflow")
    from lockstep.engine.run.loggers.mlflow import MLflow

    for step in (0, 1):
        log = MLflow(tmp_path)
        log({"kind": "settings", "step": step, "name": "small", "seed": 3})
        for number in range(step + 1, 4):
            log({"kind": "train", "step": number, "loss": 1.0 / number})
        log.close("finished" if step else "failed")
    client = MlflowClient()
    run = client.get_run(log.run)
    assert run.data.params["seed"] == "3"
    assert run.info.status == "FINISHED"
    assert [m.step for m in client.get_metric_history(log.run, "train/loss")] == [1, 2, 3]


def test_wandb_keeps_a_run_in_its_folder_without_an_account(tmp_path: Path, monkeypatch):
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    train(small(), tmp_path, 2, loggers="wandb")
    assert list(tmp_path.glob("wandb/offline-run-*/run-*.wandb"))
