"""A checkpoint is trusted only if it is whole."""

from __future__ import annotations

from pathlib import Path
from threading import Event

import pytest
import torch

from lockstep.engine.run.checkpoint import (
    Checkpoint,
    Checkpoints,
    pack_optimizer,
    read,
    unpack_optimizer,
)
from lockstep.errors import CheckpointError, RunError


def checkpoint(step: int) -> Checkpoint:
    tensors = {
        "weights": torch.full((3, 2), float(step)),
        "half": torch.ones(2, dtype=torch.bfloat16),
        "scalar": torch.tensor(step),
        "empty": torch.empty(0),
    }
    return Checkpoint(tensors, {"step": step, "note": "ä"})


def saved(folder: Path, *steps: int, keep: int = 3) -> Checkpoints:
    checkpoints = Checkpoints(folder, keep)
    for step in steps:
        checkpoints.save(checkpoint(step))
    checkpoints.finish()
    return checkpoints


def test_a_saved_checkpoint_is_read_back(tmp_path: Path):
    found, warnings = saved(tmp_path, 7).newest()
    assert found.facts == {"step": 7, "note": "ä"}
    assert warnings == []
    for name, tensor in checkpoint(7).tensors.items():
        assert torch.equal(found.tensors[name], tensor)
        assert found.tensors[name].dtype == tensor.dtype


def test_the_state_is_that_of_the_moment_of_saving(tmp_path: Path):
    checkpoints = Checkpoints(tmp_path)
    tensor = torch.zeros(1000)
    checkpoints.save(Checkpoint({"weights": tensor}, {"step": 1}))
    tensor.fill_(1.0)  # training goes on
    checkpoints.finish()
    assert checkpoints.newest()[0].tensors["weights"].sum() == 0


def test_the_facts_are_those_of_the_moment_of_saving(tmp_path: Path):
    checkpoints, goes_on = Checkpoints(tmp_path), Event()
    checkpoints._writer.submit(goes_on.wait, 10)
    sums = [1.0]
    checkpoints.save(Checkpoint({}, {"step": 1, "sums": sums}))
    sums[0] = 2.0  # training goes on before the writer begins
    goes_on.set()
    checkpoints.finish()
    assert checkpoints.newest()[0].facts["sums"] == [1.0]


def test_the_last_k_are_kept(tmp_path: Path):
    names = [p.name for p in saved(tmp_path, 1, 2, 3, 4, 5, keep=2).files()]
    assert names == ["step-00000004.safetensors", "step-00000005.safetensors"]


@pytest.mark.parametrize("cut", [0, 5, 8, 60, -1])
def test_a_file_cut_short_is_passed_over_with_a_warning(tmp_path: Path, cut: int):
    checkpoints = saved(tmp_path, 1, 2)
    newest = checkpoints.files()[-1]
    newest.write_bytes(newest.read_bytes()[:cut])
    found, warnings = checkpoints.newest()
    assert found.facts["step"] == 1
    assert len(warnings) == 1
    assert newest.name in warnings[0]


def test_every_altered_byte_is_noticed(tmp_path: Path):
    path = saved(tmp_path, 1).files()[0]
    content = path.read_bytes()
    for place in range(len(content)):
        altered = bytearray(content)
        altered[place] ^= 0x10
        path.write_bytes(altered)
        try:
            found = read(path)
        except (CheckpointError, ValueError):
            continue
        # Padding of the header may change; what is read may not.
        assert found.facts == checkpoint(1).facts
        assert torch.equal(found.tensors["weights"], checkpoint(1).tensors["weights"])


def test_no_checkpoint_that_can_be_used_is_an_error_that_names_them(tmp_path: Path):
    checkpoints = saved(tmp_path, 1, 2)
    for path in checkpoints.files():
        path.write_bytes(b"nonsense")
    with pytest.raises(CheckpointError, match=r"step-00000002.*step-00000001"):
        checkpoints.newest()


def test_nothing_half_written_lies_under_a_checkpoint_s_name(tmp_path: Path):
    saved(tmp_path, 1, 2)
    assert all(p.name.startswith("step-") for p in tmp_path.iterdir())


def test_a_full_disk_shows(tmp_path: Path):
    checkpoints = Checkpoints(tmp_path / "missing")
    checkpoints.save(checkpoint(1))
    with pytest.raises(RunError, match="cannot be written"):
        checkpoints.finish()


@pytest.mark.parametrize(
    "build",
    [
        lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
        lambda p: torch.optim.AdamW(p, lr=0.1, amsgrad=True),
        lambda p: torch.optim.Adagrad(p, lr=0.1),
        lambda p: torch.optim.SGD(p, lr=0.1),
    ],
)
def test_an_optimizer_continues_where_it_was(build):
    def steps(model, optimizer, number):
        for _ in range(number):
            optimizer.zero_grad()
            model(torch.ones(1, 3)).sum().square().backward()
            optimizer.step()

    torch.manual_seed(0)
    first, second = torch.nn.Linear(3, 2), torch.nn.Linear(3, 2)
    one = build(first.parameters())
    steps(first, one, 3)
    second.load_state_dict(first.state_dict())
    two = build(second.parameters())
    tensors, facts = pack_optimizer(one)
    unpack_optimizer(two, {n: t.clone() for n, t in tensors.items()}, facts)
    steps(first, one, 3)
    steps(second, two, 3)
    assert torch.equal(first.weight, second.weight)
