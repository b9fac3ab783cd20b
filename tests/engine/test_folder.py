"""A run's folder: claimed once, written whole, equal for equal weights."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_model
from torch import nn

from lockstep import models
from lockstep.engine.run.atomic_write import replace_file
from lockstep.engine.run.run_folder import RunFolder, state_of
from lockstep.errors import FolderError, RunError
from replicas import small, train


def test_a_new_and_an_empty_folder_are_taken(tmp_path: Path):
    RunFolder(tmp_path / "deep" / "new").claim()
    (tmp_path / "empty").mkdir()
    RunFolder(tmp_path / "empty").claim()
    assert (tmp_path / "empty" / "checkpoints").is_dir()


def test_a_file_and_a_folder_with_a_run_are_refused(tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(FolderError, match="is a file"):
        RunFolder(tmp_path / "file").claim()
    (tmp_path / "run.json").write_text("{}")
    with pytest.raises(FolderError, match="--resume"):
        RunFolder(tmp_path).claim()


def test_a_place_that_cannot_be_written_is_refused(tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(FolderError, match="cannot be made"):
        RunFolder(tmp_path / "file" / "below").claim()


@pytest.mark.parametrize("content", ["", "{", "[]"])
def test_a_damaged_summary_is_named(tmp_path: Path, content: str):
    (tmp_path / "run.json").write_text(content)
    with pytest.raises(FolderError, match="is damaged"):
        RunFolder(tmp_path).summary()


def test_lines_after_a_step_are_forgotten_and_a_cut_line_is_passed_over(tmp_path: Path):
    folder = RunFolder(tmp_path)
    for step in range(1, 5):
        folder.log(kind="train", step=step)
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"kind": "tra')
    assert [r["step"] for r in folder.metrics()] == [1, 2, 3, 4]
    folder.forget_after(2)
    assert [r["step"] for r in folder.metrics()] == [1, 2]


def test_equal_weights_make_equal_files_and_others_do_not(tmp_path: Path):
    folder = RunFolder(tmp_path)

    def digest(seed: int) -> str:
        torch.manual_seed(seed)
        return folder.write_weights(models.gpt(1, 32, length=8))

    assert digest(0) == digest(0)
    assert digest(0) != digest(1)


def test_weights_load_into_a_plain_model_also_where_they_are_tied(tmp_path: Path):
    torch.manual_seed(0)
    model = models.gpt(1, 32, length=8)
    RunFolder(tmp_path).write_weights(model)
    other = models.gpt(1, 32, length=8)
    load_model(other, tmp_path / "weights.safetensors")
    assert torch.equal(other.head.weight, model.tokens.weight)


def test_a_tensor_with_two_names_is_kept_once():
    layer = nn.Linear(2, 2)
    assert list(state_of(nn.Sequential(layer, layer))) == ["0.weight", "0.bias"]


def test_a_failed_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    target = tmp_path / "file"
    target.write_bytes(b"old")

    def fails(fd: int) -> None:
        raise OSError("disk full")

    monkeypatch.setattr("os.fsync", fails)
    with pytest.raises(RunError, match="disk full"):
        replace_file(target, b"new")
    assert target.read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_a_folder_is_used_by_one_run_at_a_time(tmp_path: Path):
    out = tmp_path / "run"
    train(small(), out, max_steps=1, checkpoint_every=1)
    other = RunFolder(out)
    other.lock()
    with pytest.raises(FolderError, match="in use by another run"):
        train(small(), out, resume=True)
    os.close(other._lock)
    train(small(), out, resume=True)
