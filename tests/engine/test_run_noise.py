"""The noise scale of a run: read from what the plan offers, without a trace in the weights."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from lockstep import models
from lockstep.engine.recipe.job import Job
from lockstep.errors import PlanError
from replicas import in_double, small, train

PLANS: dict[str, dict[str, Any]] = {
    "steps": {},
    "shards": {"micro_batch": 8},
    "shards, exact": {"exact": True},
    "replicas": {"replicas": 2},
    "replicas, exact": {"replicas": 2, "exact": True},
    "replicas, bf16": {"replicas": 2, "wire": "bf16"},
    "replicas, timeline": {"replicas": 2, "timeline": True},
}


@pytest.mark.parametrize("plan", PLANS)
def test_listening_leaves_no_trace_in_the_weights(tmp_path: Path, plan: str, request):
    if "exact" not in plan:
        request.getfixturevalue("gloo")
    runs = [
        train(small(128), tmp_path / str(noise), noise=noise, **PLANS[plan])
        for noise in (False, True)
    ]
    assert runs[0]["weights_sha256"] == runs[1]["weights_sha256"]
    assert runs[0]["noise"] is None
    assert runs[1]["noise"]["source"] == plan.split(",")[0]


def in_shards(samples: int = 128, **changes: Any):
    """In double precision, without layers that see how a batch is cut."""
    model = partial(models.mlp, (64, 16, 10))
    return in_double(small(samples, epochs=12, model=model, augment=(), **changes), samples)


def test_shards_and_replicas_tell_the_same_fast_and_exact(tmp_path: Path, way: str):
    def noise(name: str, **options: Any) -> dict[str, Any]:
        found: dict[str, Any] = train(in_shards(), tmp_path / name, noise=True, **options)["noise"]
        return found

    shards = [noise("a", micro_batch=8), noise("b", exact=True)]
    replicas = [noise("c", replicas=2), noise("d", replicas=2, exact=True)]
    for fast, exact in (shards, replicas):
        # The same lengths but for rounding; differences of them, over some fifty steps.
        assert fast.pop("source") == exact.pop("source")
        for name, value in fast.items():
            assert value == (exact[name] and pytest.approx(exact[name], rel=1e-6))
        assert fast["low"] < fast["value"] < (fast["high"] or float("inf"))


def test_the_way_of_a_noise_scale_is_logged(tmp_path: Path):
    out = tmp_path / "run"
    run = train(in_shards(), out, noise=True, micro_batch=8)
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    found = [line for line in lines if "noise_scale" in line]
    assert found
    assert found[-1]["noise_scale"] == run["noise"]["value"]


def test_a_last_batch_that_is_smaller_does_not_count(tmp_path: Path):
    # Three whole batches of 32 and one of four, in each of two epochs.
    for name, options in (("replicas", {"replicas": 2}), ("shards", {"micro_batch": 8})):
        run = train(small(100), tmp_path / name, noise=True, **options)
        assert run["status"] == "finished"


def test_adam_s_noise_is_in_its_own_units(tmp_path: Path):
    plain = train(in_shards(), tmp_path / "sgd", noise=True, micro_batch=8)
    adam = in_shards(optimizer=torch.optim.Adam, learning_rate=1e-3)
    other = train(adam, tmp_path / "adam", noise=True, micro_batch=8)
    assert other["noise"]["value"] != pytest.approx(plain["noise"]["value"], rel=0.1)


def test_one_piece_has_no_gradients_to_look_at(tmp_path: Path):
    with pytest.raises(PlanError, match="--noise looks at every gradient"):
        Job(recipe=small(), out=tmp_path, speed="graph", noise=True)
