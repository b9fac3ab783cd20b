"""The best weights and early stopping: the same on any replicas, through a kill and a resume."""

from __future__ import annotations

import hashlib
import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from lockstep.console import Console
from lockstep.engine.program.goals import Goal
from lockstep.engine.program.record import ProgramRecord
from lockstep.errors import PlanError, RecipeError, ReplicaDied
from programs import killed_after, run, written

MEASURED = """
def measure(batch):
    x, y = batch
    scores = model(x)
    return {{"accuracy": (scores.argmax(1) == y).float(),
             "test_loss": F.cross_entropy(scores, y, reduction="none")}}

with lockstep.Loop(global_batch=16, exact=True, loggers=["csv"]) as loop:
    model = loop.model(Net())
    optimizer = loop.optimizer(torch.optim.AdamW(model.parameters(), lr=3e-2))
    batches = loop.batches(DATA)
    {goals}
    def loss(batch):
        x, y = batch
        return F.cross_entropy(model(x), y, reduction="sum"), len(y)
    for epoch in loop.epochs({epochs}):
        for batch in batches:
            loop.step(batch, loss, optimizer)
            {inside}
        loop.evaluate(DATA[:30], measure)
"""


def program(folder: Path, goals: str = "pass", epochs: int = 4, inside: str = "pass") -> Path:
    return written(folder, MEASURED.format(goals=goals, epochs=epochs, inside=inside))


def best(out: Path) -> tuple[Any, ...]:
    """Return value, step and hash of the best weights; the hash is that of the file."""
    found = json.loads((out / "run.json").read_text())["best"]
    content = (out / "best.safetensors").read_bytes()
    assert hashlib.sha256(content).hexdigest() == found["sha256"]
    return found["name"], found["value"], found["step"], found["sha256"]


def measured(out: Path, name: str = "test_loss") -> dict[int, float]:
    lines = map(json.loads, (out / "metrics.jsonl").read_text().splitlines())
    return {line["step"]: line[name] for line in lines if line["kind"] == "test"}


def test_a_goal_takes_better_values_only_and_never_nan():
    goal = Goal("accuracy", largest=True, patience=2)
    seen = [goal.see(value, step) for step, value in enumerate([float("nan"), 0.5, 0.5, 0.6])]
    assert seen == [False, True, False, True]
    assert (goal.value, goal.step, goal.since, goal.is_lost) == (0.6, 3, 0, False)
    for value in (0.6, float("nan")):
        goal.see(value, 9)
    assert goal.is_lost


def test_the_best_weights_are_kept_and_are_the_same_on_any_replicas(
    tmp_path: Path, numbers: tuple[int, ...]
):
    path = program(tmp_path, 'loop.best("test_loss")')
    for replicas in numbers:
        run(path, tmp_path / str(replicas), replicas)
    found = {best(tmp_path / str(replicas)) for replicas in numbers}
    values = measured(tmp_path / "1")
    (name, value, step, _) = found.pop()
    assert not found
    assert (name, value) == ("test_loss", min(values.values()))
    assert values[step] == value
    # A run that had ended there has these weights.
    shorter = run(path, tmp_path / "shorter", max_steps=step)
    assert shorter["weights_sha256"] == best(tmp_path / "1")[3]


@pytest.mark.slow
def test_a_resumed_run_has_the_best_weights_of_an_uninterrupted_one(tmp_path: Path, monkeypatch):
    # The accuracy is best early, so that a resumed run must keep what it does not see again.
    path = program(tmp_path, 'loop.best("accuracy", largest=True)', inside="loop.steps")
    run(path, tmp_path / "whole")
    values = measured(tmp_path / "whole", "accuracy")
    assert min(values) == 5
    for step in (7, 12, 17):
        out = tmp_path / f"killed-{step}"
        revive = killed_after(monkeypatch, step, rank=1)
        with pytest.raises(ReplicaDied):
            run(path, out, 2)
        revive()
        run(path, out, 4, resume=True)
        assert best(out) == best(tmp_path / "whole")


def test_best_weights_past_the_checkpoint_do_not_survive_a_resume(tmp_path: Path, monkeypatch):
    path = program(tmp_path, 'loop.best("test_loss", largest=True)', epochs=2)
    whole = tmp_path / "whole"
    run(path, whole, checkpoint_every=3)
    assert best(whole)[2] == 10
    plain = ProgramRecord.after_epoch

    def killed(self: ProgramRecord) -> None:
        if self.epoch == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        plain(self)

    monkeypatch.setattr(ProgramRecord, "after_epoch", killed)
    out = tmp_path / "killed"
    with pytest.raises(ReplicaDied):
        run(path, out, checkpoint_every=3)
    assert best(out) == best(whole)
    monkeypatch.setattr(ProgramRecord, "after_epoch", plain)
    # The checkpoint is that of step 9; the run ends before the best weights come again.
    run(path, out, 2, resume=True, max_steps=9)
    run(path, tmp_path / "shorter", max_steps=5)
    assert measured(out).keys() == {5}
    assert best(out) == best(tmp_path / "shorter")


def test_an_evaluation_that_was_killed_after_it_counts_once(tmp_path: Path, monkeypatch):
    path = program(tmp_path, 'loop.best("test_loss"); loop.stop_early("test_loss", patience=2)')
    whole = run(path, tmp_path / "whole")
    plain = ProgramRecord.after_epoch

    def killed(self: ProgramRecord) -> None:
        if self.epoch == 1:
            # The last checkpoint was made after the last batch, before the evaluation.
            self.checkpoints.finish()
            os.kill(os.getpid(), signal.SIGKILL)
        plain(self)

    monkeypatch.setattr(ProgramRecord, "after_epoch", killed)
    with pytest.raises(ReplicaDied):
        run(path, tmp_path / "killed")
    monkeypatch.setattr(ProgramRecord, "after_epoch", plain)
    found = run(path, tmp_path / "killed", resume=True)
    assert found["steps"] == whole["steps"]
    assert best(tmp_path / "killed") == best(tmp_path / "whole")
    lines = [(tmp_path / n / "metrics.jsonl").read_text() for n in ("whole", "killed")]
    assert lines[0].count('"kind": "test"') == lines[1].count('"kind": "test"')


def test_training_stops_early_at_the_same_step_on_any_replicas(tmp_path: Path):
    path = program(tmp_path, 'loop.stop_early("test_loss", patience=2)', epochs=30)
    runs = [run(path, tmp_path / str(n), n) for n in (1, 2)]
    assert runs[0]["steps"] == runs[1]["steps"] < 150
    assert runs[0]["weights_sha256"] == runs[1]["weights_sha256"]
    assert "test_loss has not improved in 2 evaluations" in runs[0]["stopped_early"]
    values = list(measured(tmp_path / "1").values())
    assert min(values) == values[-3]


def test_a_value_that_improves_does_not_stop_training(tmp_path: Path):
    found = run(program(tmp_path, 'loop.stop_early("test_loss", patience=30)'), tmp_path / "run")
    assert (found["steps"], "stopped_early" in found) == (20, False)


def test_a_resumed_run_stops_where_an_uninterrupted_one_does(tmp_path: Path, monkeypatch):
    path = program(tmp_path, 'loop.stop_early("test_loss", patience=2)', epochs=30)
    whole = run(path, tmp_path / "whole")
    out = tmp_path / "killed"
    revive = killed_after(monkeypatch, whole["steps"] - 1)
    with pytest.raises(ReplicaDied):
        run(path, out)
    revive()
    found = run(path, out, 2, resume=True)
    assert found["steps"] == whole["steps"]
    assert found["weights_sha256"] == whole["weights_sha256"]


def test_an_evaluation_inside_an_epoch_stops_it_there(tmp_path: Path):
    goal = 'loop.stop_early("again_accuracy", patience=1, largest=True)'
    inside = (
        'loop.evaluate(DATA[:1], lambda batch: {"accuracy": (torch.zeros(()), 1)}, prefix="again_")'
    )
    found = run(program(tmp_path, goal, inside=inside), tmp_path / "run", 2)
    # The second value is not better than the first.
    assert found["steps"] == 2


@pytest.mark.parametrize(
    ("goal", "error", "message"),
    [
        ('loop.best("accuracy")', RecipeError, r"loop.best\('accuracy', largest=True\)"),
        ('loop.stop_early("loss", patience=0)', PlanError, "Give 1 or more"),
        ('loop.best("loss"); loop.best("error")', RecipeError, "one best.safetensors"),
    ],
)
def test_goals_that_cannot_work_are_refused(tmp_path: Path, goal: str, error, message: str):
    with pytest.raises(error, match=message):
        run(program(tmp_path, goal), tmp_path / "run")


def test_a_goal_declared_after_training_began_is_refused(tmp_path: Path):
    path = program(tmp_path, inside='loop.best("test_loss")')
    with pytest.raises(RecipeError, match=r"loop.best was called after training began"):
        run(path, tmp_path / "run")


def test_a_name_that_is_never_measured_is_reported_early(tmp_path: Path, capfd):
    path = program(tmp_path, 'loop.stop_early("tset_loss", patience=2)', epochs=2)
    run(path, tmp_path / "run", console=Console())
    said = " ".join("".join(capfd.readouterr()).split())
    assert said.count("waits for tset_loss, but evaluations have measured only accuracy") == 1
