"""The noise scale that a Loop measures, on gradients whose noise scale is known."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from programs import run, written

# The gradient of a sample is the sample: mean (1, ..., 1), variance 4 in each of six dimensions.
# So the noise scale is the trace of the covariance over the squared mean: 24 / 6.
KNOWN = """
import torch
import lockstep
X = 1 + 2 * torch.randn(2048, 6, generator=torch.Generator().manual_seed(3))
with lockstep.Loop(global_batch=BATCH, exact=EXACT, noise=True, log_every=8) as loop:
    model = loop.model(torch.nn.Linear(6, 1, bias=False))
    optimizer = loop.optimizer(torch.optim.SGD(model.parameters(), lr=1e-6))
    batches = loop.batches([(x,) for x in X])
    def loss(batch):
        total = model(batch[0]).sum() * WEIGHT
        return total, len(batch[0]) * WEIGHT
    for epoch in loop.epochs(4):
        for batch in batches:
            loop.step(batch, loss, optimizer)
"""


def program(folder: Path, *, exact: bool, batch: int = 16, weight: float = 1.0) -> Path:
    text = KNOWN.replace("EXACT", str(exact)).replace("BATCH", str(batch))
    return written(folder, text.replace("WEIGHT", str(weight)), head="")


@pytest.mark.parametrize(("replicas", "exact"), [(1, False), (1, True), (2, False), (2, True)])
def test_a_known_noise_scale_is_found(replicas: int, exact: bool, tmp_path: Path):
    summary = run(program(tmp_path, exact=exact), tmp_path / "out", replicas)
    found = summary["noise"]
    assert found["source"] == ("steps" if (replicas, exact) == (1, False) else "parts of the batch")
    assert found["low"] < 4 < found["high"]
    assert found["value"] == pytest.approx(4, rel=0.25)
    lines = [json.loads(t) for t in (tmp_path / "out/metrics.jsonl").read_text().splitlines()]
    assert lines[-1]["noise_scale"] == found["value"]


@pytest.mark.slow
def test_the_noise_scale_does_not_depend_on_replicas_or_on_the_unit_of_a_count(tmp_path: Path):
    found = [
        run(program(tmp_path, exact=True), tmp_path / "a", 1)["noise"]["value"],
        run(program(tmp_path, exact=True), tmp_path / "b", 4)["noise"]["value"],
        run(program(tmp_path, exact=True, weight=8.0), tmp_path / "c", 2)["noise"]["value"],
    ]
    assert found == pytest.approx([found[0]] * 3, rel=1e-5)


def test_nothing_is_measured_unless_asked(tmp_path: Path):
    path = program(tmp_path, exact=True)
    path.write_text(path.read_text().replace("noise=True, ", ""))
    summary = run(path, tmp_path / "out")
    assert summary["noise"] is None
    assert "noise_scale" not in (tmp_path / "out/metrics.jsonl").read_text()
    assert run(path, tmp_path / "flag", noise=True)["noise"]["value"] > 0
