"""Programs that only evaluate: weights of another run, the same result on any replicas."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import lockstep
from lockstep.errors import FolderError, RecipeError, ReplicaDied, RunError
from programs import PLAIN, killed_after, run, written

EVALUATE = """
def measure(batch):
    x, y = batch
    return {{"test_loss": F.cross_entropy(model(x), y, reduction="none")}}

with lockstep.Loop(global_batch=16, exact=True) as loop:
    model = loop.model({model})
    loop.load({folder!r}, best={best})
    loop.evaluate(DATA[:33], measure)
"""
BEST = PLAIN.replace("    batches =", '    loop.best("test_loss")\n    batches =') + (
    "        loop.evaluate(DATA[:33], lambda batch: {'test_loss': F.cross_entropy(\n"
    "            model(batch[0]), batch[1], reduction='none')})\n"
)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trained")
    run(written(folder, BEST), folder / "run", 2)
    return folder / "run"


def program(folder: Path, source: Path, *, best: bool = False, model: str = "Net()") -> Path:
    return written(folder, EVALUATE.format(folder=str(source), best=best, model=model))


@pytest.mark.parametrize("replicas", [1, 2])
def test_a_program_that_only_evaluates_finds_what_the_training_found(
    tmp_path: Path, trained: Path, replicas: int
):
    found = run(program(tmp_path, trained), tmp_path / "run", replicas)
    before = lockstep.Run.load(trained)
    # Batch norm has its running statistics, so that every bit agrees.
    assert found["metrics"] == before.metrics
    assert found["weights_sha256"] == before.weights_sha256
    assert found["loaded"] == str(trained / "weights.safetensors")
    assert (found["status"], found["steps"], found["epochs"]) == ("finished", 0, 0.0)
    assert "training" not in found["time"]
    assert not (tmp_path / "run" / "weights.safetensors").exists()
    assert lockstep.Run.load(tmp_path / "run").metrics == before.metrics
    assert len(lockstep.Run.load(tmp_path / "run").history()) == 1


def test_the_best_weights_can_be_evaluated(tmp_path: Path, trained: Path):
    found = run(program(tmp_path, trained, best=True), tmp_path / "run", 2)
    best = lockstep.Run.load(trained).summary["best"]
    assert found["metrics"]["test_loss"] == best["value"]
    assert found["weights_sha256"] == best["sha256"]


def test_a_run_can_end_with_its_best_weights(tmp_path: Path):
    path = written(tmp_path, BEST + "    loop.load(loop.folder, best=True)\n")
    found = [run(path, tmp_path / str(n), n) for n in (1, 2)]
    for one in found:
        assert one["weights_sha256"] == found[0]["best"]["sha256"]


def test_a_run_can_start_from_the_weights_of_another(tmp_path: Path, trained: Path):
    body = PLAIN.replace("    optimizer =", f"    loop.load({str(trained)!r})\n    optimizer =")
    found = [run(written(tmp_path, body), tmp_path / str(n), n) for n in (1, 2)]
    assert found[0]["weights_sha256"] == found[1]["weights_sha256"]
    assert found[0]["weights_sha256"] != lockstep.Run.load(trained).weights_sha256
    assert found[0]["steps"] == 10


def test_several_models_load_under_their_names(tmp_path: Path):
    models = "a = loop.model(Net(), 'a')\n    b = loop.model(nn.Sequential(nn.Linear(2, 2)), 'b')\n"
    train = PLAIN.replace("model = loop.model(Net())\n", f"{models}    model = a\n")
    run(written(tmp_path, train), tmp_path / "run")
    body = f"""
with lockstep.Loop(global_batch=16) as loop:
    {models}    loop.load({str(tmp_path / "run")!r})
    torch.save(b[0].weight, {str(tmp_path / "b.pt")!r})
"""
    run(written(tmp_path, body), tmp_path / "loaded")
    expected = load_file(tmp_path / "run" / "weights.safetensors")["b.0.weight"]
    assert torch.load(tmp_path / "b.pt").equal(expected)


def test_weights_of_another_model_are_refused(tmp_path: Path, trained: Path):
    path = program(tmp_path, trained, model="nn.Sequential(nn.Linear(6, 3))")
    with pytest.raises(RecipeError, match=r"does not fit the weights in .*Build the model"):
        run(path, tmp_path / "run", 2)


def test_a_folder_without_weights_is_refused_with_a_way_on(tmp_path: Path):
    with pytest.raises(FolderError, match=r"holds no run.*folder of a run"):
        run(program(tmp_path, tmp_path / "nowhere"), tmp_path / "a")
    body = PLAIN.replace("loop.step(batch, loss, optimizer)", "raise SystemExit(1)")
    with pytest.raises(RunError):
        run(written(tmp_path, body), tmp_path / "broken")
    with pytest.raises(FolderError, match=r"without weights.safetensors.*best=True"):
        run(program(tmp_path, tmp_path / "broken"), tmp_path / "b")
    with pytest.raises(FolderError, match=r"without best.safetensors.*loop.best"):
        run(program(tmp_path, tmp_path / "broken", best=True), tmp_path / "c")


def test_a_restarted_evaluation_writes_its_lines_once(tmp_path: Path, trained: Path):
    out = tmp_path / "run"
    broken = program(tmp_path, trained).read_text() + "    raise SystemExit(1)\n"
    (tmp_path / "broken.py").write_text(broken)
    with pytest.raises(RunError):
        run(tmp_path / "broken.py", out)
    found = run(program(tmp_path, trained), out, 2, resume=True)
    assert found["status"] == "finished"
    assert len((out / "metrics.jsonl").read_text().splitlines()) == 1


def test_an_evaluation_does_not_take_the_folder_of_a_training(tmp_path: Path, trained: Path):
    before = (trained / "run.json").read_bytes()
    with pytest.raises(FolderError, match=r"finished. Start a new run in another folder"):
        run(program(tmp_path, trained), trained, resume=True)
    assert (trained / "run.json").read_bytes() == before
    copy = tmp_path / "interrupted"
    copy.mkdir()
    (copy / "checkpoints").mkdir()
    (copy / "run.json").write_text(json.dumps(json.loads(before) | {"status": "interrupted"}))
    (copy / "checkpoints" / "step-00000005.safetensors").touch()
    before = (copy / "run.json").read_bytes()
    with pytest.raises(FolderError, match=r"this program only evaluates"):
        run(program(tmp_path, trained), copy, resume=True)
    assert (copy / "run.json").read_bytes() == before


def test_an_evaluation_before_training_is_logged_once_after_a_resume(tmp_path: Path, monkeypatch):
    first = "    loop.evaluate(DATA[:9], lambda batch: {'ones': torch.ones(len(batch[1]))})\n"
    path = written(tmp_path, PLAIN.replace("    for epoch", f"{first}    for epoch"))
    for step in (3, 8):
        # Before and after the first checkpoint.
        out = tmp_path / str(step)
        revive = killed_after(monkeypatch, step)
        with pytest.raises(ReplicaDied):
            run(path, out)
        revive()
        run(path, out, 2, resume=True)
        lines = map(json.loads, (out / "metrics.jsonl").read_text().splitlines())
        assert [(line["kind"], line["step"]) for line in lines] == [
            ("test", 0),
            ("train", 5),
            ("train", 10),
        ]
