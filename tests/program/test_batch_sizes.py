"""Each data set may have a batch of its own, and may leave out a smaller last one."""

from __future__ import annotations

from pathlib import Path

import pytest

from lockstep.errors import LockstepError
from programs import Heard, run, written

BODY = """
class Stream:
    def __iter__(self):
        return iter(DATA)

with lockstep.Loop(global_batch=16, exact=True) as loop:
    model = loop.model(Net())
    optimizer = loop.optimizer(torch.optim.SGD(model.parameters(), lr=0.1))
    batches = loop.batches({data})
    def loss(batch):
        x, y = batch
        return F.cross_entropy(model(x), y, reduction="sum"), len(y)
    seen = []
    for epoch in loop.epochs(1):
        for batch in batches:
            loop.step(batch, loss, optimizer)
            seen.append(batch.samples)
    loop.say("seen", seen)
"""
SAMPLER = "sampler=torch.utils.data.RandomSampler(DATA)"


@pytest.mark.parametrize(
    ("data", "sizes"),
    [
        ("DATA", [16, 16, 16, 16, 6]),
        ("DATA, drop_last=True", [16] * 4),
        ("DATA, global_batch=32", [32, 32, 6]),
        ("DATA, global_batch=33, drop_last=True", [33, 33]),
        (f"DATA, global_batch=24, drop_last=True, {SAMPLER}", [24, 24]),
        ("Stream(), global_batch=24, drop_last=True", [24, 24]),
        ("Stream(), global_batch=24, drop_last=True, workers=2", [24, 24]),
        ("Stream(), global_batch=24", [24, 24, 22]),
    ],
)
def test_batches_have_the_size_that_was_asked_for(data: str, sizes: list[int], tmp_path: Path):
    path = written(tmp_path, BODY.replace("{data}", data))
    console = Heard(tmp_path / "said", says=True)
    one = run(path, tmp_path / "one", console=console)
    assert f"seen {sizes}" in console.text
    assert run(path, tmp_path / "two", 2)["weights_sha256"] == one["weights_sha256"]


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ("DATA, global_batch=2", "4 shards"),
        ("DATA, global_batch=100, drop_last=True", "nothing is left"),
        ("DATA, drop_last=True, batch_sampler=[[0, 1, 2, 3]]", "no drop_last"),
        ("DATA, global_batch=8, batch_sampler=[[0, 1, 2, 3]]", "no global_batch"),
    ],
)
def test_sizes_that_cannot_work_are_refused(data: str, words: str, tmp_path: Path):
    path = written(tmp_path, BODY.replace("{data}", data))
    with pytest.raises(LockstepError, match=words):
        run(path, tmp_path / "run")


def test_a_shard_of_one_sample_in_batch_norm_is_refused(tmp_path: Path):
    path = written(tmp_path, BODY.replace("{data}", "DATA, global_batch=4"))
    with pytest.raises(LockstepError, match="one value per channel"):
        run(path, tmp_path / "run")


def test_a_small_last_batch_that_leaves_single_samples_is_pointed_out(tmp_path: Path):
    console = Heard(tmp_path / "said", says=True)
    run(written(tmp_path, BODY.replace("{data}", "DATA")), tmp_path / "run", console=console)
    assert "last batch of 6 samples" in console.text


def test_whole_shards_are_not_pointed_out(tmp_path: Path):
    console = Heard(tmp_path / "said", says=True)
    path = written(tmp_path, BODY.replace("{data}", "DATA, drop_last=True"))
    run(path, tmp_path / "run", console=console)
    assert "one value per channel" not in console.text
