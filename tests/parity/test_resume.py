"""A crash or a resize does not change the result: killed in mid-epoch, resumed elsewhere."""

from __future__ import annotations

import json
import os
import signal
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch

from lockstep.engine.run.checkpoint import Checkpoints
from lockstep.errors import Interrupted, ReplicaDied
from replicas import small, train

RECIPE = small(100, epochs=3)  # four steps an epoch, the last one uneven


def dying_at(call: int, flag: Path, kind: int = signal.SIGKILL):
    """A loss that sends its process a signal at some call in training, unless `flag` exists."""
    from lockstep.engine.step.metrics import cross_entropy

    calls = 0

    def loss(outputs, targets):
        nonlocal calls
        if outputs.requires_grad:
            calls += 1
            if calls == call and not flag.exists():
                os.kill(os.getpid(), kind)
        return cross_entropy(outputs, targets)

    loss.__name__ = "cross_entropy"
    return loss


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("undisturbed") / "run"
    train(RECIPE, out, exact=True)
    return out


def sha(out: Path) -> str:
    return json.loads((out / "run.json").read_text())["weights_sha256"]


def logs(out: Path) -> list[tuple]:
    names = ("kind", "step", "epoch", "loss", "learning_rate", "test_loss", "accuracy")
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    return [tuple(line.get(name) for name in names) for line in lines]


@pytest.mark.parametrize(
    ("before", "after"),
    [(1, 2), (2, 2), *(pytest.param(*pair, marks=pytest.mark.slow) for pair in ((2, 4), (4, 1)))],
)
def test_killed_in_mid_epoch_and_resumed_on_other_replicas(
    tmp_path: Path, undisturbed: Path, before: int, after: int
):
    out = tmp_path / "run"
    shards = 4 // before
    dying = replace(RECIPE, loss=dying_at(6 * shards + 1, tmp_path / "flag"))
    with pytest.raises(ReplicaDied, match="killed by signal 9"):
        train(dying, out, before, exact=True, check_every=0, checkpoint_every=1)
    files = Checkpoints(out / "checkpoints").files()
    assert 1 <= len(files) <= 4  # killed between writing one and dropping the oldest
    assert files[-1].name in ("step-00000005.safetensors", "step-00000006.safetensors")
    (tmp_path / "flag").touch()
    train(dying, out, after, exact=True, check_every=0, checkpoint_every=1, resume=True)
    assert sha(out) == sha(undisturbed)
    assert logs(out) == logs(undisturbed)


def test_a_stop_request_saves_a_checkpoint_and_the_run_can_go_on(tmp_path: Path, undisturbed: Path):
    out = tmp_path / "run"
    stopping = replace(RECIPE, loss=dying_at(2 * 5, tmp_path / "flag", signal.SIGTERM))
    with pytest.raises(Interrupted, match="Continue with --resume"):
        train(stopping, out, 2, exact=True, check_every=0)
    assert json.loads((out / "run.json").read_text())["status"] == "interrupted"
    (tmp_path / "flag").touch()
    train(stopping, out, 1, exact=True, check_every=0, resume=True)
    assert sha(out) == sha(undisturbed)


def test_a_stop_request_to_one_replica_stops_all_of_them_after_the_same_step(
    tmp_path: Path, undisturbed: Path
):
    flag = tmp_path / "flag"
    inner = RECIPE.loss

    def loss(outputs, targets):
        if outputs.requires_grad and not flag.exists():
            try:
                flag.open("x").close()
            except FileExistsError:
                return inner(outputs, targets)
            os.kill(os.getpid(), signal.SIGTERM)
        return inner(outputs, targets)

    loss.__name__ = inner.__name__
    out = tmp_path / "run"
    stopping = replace(RECIPE, loss=loss)
    with pytest.raises(Interrupted):
        train(stopping, out, 4, exact=True, check_every=0)
    train(stopping, out, 2, exact=True, check_every=0, resume=True)
    assert sha(out) == sha(undisturbed)


def test_a_damaged_checkpoint_is_passed_over_for_the_one_before(
    tmp_path: Path, undisturbed: Path, capfd: pytest.CaptureFixture
):
    out = tmp_path / "run"
    train(RECIPE, out, 2, exact=True, checkpoint_every=3, max_steps=7)
    newest = Checkpoints(out / "checkpoints").files()[-1]
    content = bytearray(newest.read_bytes())
    content[-5] ^= 1
    newest.write_bytes(content)
    train(RECIPE, out, 4, exact=True, resume=True)
    assert "its checksum does not match" in capfd.readouterr().err
    assert sha(out) == sha(undisturbed)


def test_without_any_checkpoint_a_resume_starts_over(tmp_path: Path, undisturbed: Path):
    out = tmp_path / "run"
    with pytest.raises(ReplicaDied):
        train(replace(RECIPE, loss=dying_at(3, tmp_path / "flag")), out, exact=True)
    train(RECIPE, out, exact=True, resume=True)
    assert sha(out) == sha(undisturbed)
    assert logs(out) == logs(undisturbed)


def test_fast_mode_resumes_too(tmp_path: Path):
    whole = train(RECIPE, tmp_path / "whole", 2)
    train(RECIPE, tmp_path / "parts", 2, max_steps=5, checkpoint_every=5)
    parts = train(RECIPE, tmp_path / "parts", 2, resume=True)
    # Same replicas, same shapes: the same bits, also in fast mode.
    assert parts["weights_sha256"] == whole["weights_sha256"]


@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.AdamW])
def test_fused_optimizers_resume_with_the_layout_of_their_weights(tmp_path: Path, kind):
    options = {"momentum": 0.9} if kind is torch.optim.SGD else {}
    recipe = replace(RECIPE, optimizer=partial(kind, fused=True, **options))
    whole = train(recipe, tmp_path / "whole", exact=True)
    train(recipe, tmp_path / "parts", exact=True, max_steps=5, checkpoint_every=5)
    parts = train(recipe, tmp_path / "parts", 2, exact=True, resume=True)
    assert parts["weights_sha256"] == whole["weights_sha256"]


def test_a_run_that_died_before_its_weights_were_written_is_finished_by_a_resume(
    tmp_path: Path, undisturbed: Path
):
    out = tmp_path / "run"
    train(RECIPE, out, 2, exact=True, checkpoint_every=4)
    summary = json.loads((out / "run.json").read_text())
    (out / "run.json").write_text(json.dumps(summary | {"status": "running"}))
    (out / "weights.safetensors").unlink()
    train(RECIPE, out, exact=True, resume=True)
    assert sha(out) == sha(undisturbed)
    assert (out / "weights.safetensors").exists()


def test_a_damaged_checkpoint_does_not_outlive_good_ones(tmp_path: Path):
    out = tmp_path / "run"
    train(RECIPE, out, exact=True, checkpoint_every=3, max_steps=6)
    (out / "checkpoints" / "step-00000099.safetensors").write_bytes(b"nonsense")
    train(RECIPE, out, exact=True, resume=True, checkpoint_every=4, keep=1)
    names = sorted(p.name for p in (out / "checkpoints").iterdir())
    assert names == ["step-00000012.safetensors", "step-00000099.damaged"]
