"""Every wire keeps the replicas in step; buckets change nothing; what a wire remembers is kept.

The engine itself refuses a run whose replicas end with different bits, so a run that ends is half
of the proof.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from lockstep.engine.recipe.recipe import Recipe
from replicas import in_double, small, train

# Double precision: 2.2e-16 per operation, amplified over a dozen steps by less than 1e5.
ROUNDING = 1e-10


def weights(recipe: Recipe, out: Path, replicas: int, **options) -> dict[str, torch.Tensor]:
    train(recipe, out, replicas, **options)
    return load_file(out / "weights.safetensors")


def gap(first: dict[str, torch.Tensor], second: dict[str, torch.Tensor]) -> float:
    assert first.keys() == second.keys()
    return max((first[n].double() - second[n].double()).abs().max().item() for n in first)


@pytest.mark.parametrize("wire", ["shared", "fp32", "bf16", "powersgd"])
@pytest.mark.parametrize("replicas", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_every_wire_ends_with_equal_weights_and_a_timeline_changes_no_bit(
    tmp_path: Path, wire: str, replicas: int, request
):
    if wire == "shared":
        wire = "fp32"
    else:
        request.getfixturevalue("gloo")
    options = {"wire": wire, "bucket_mb": 0.05, "micro_batch": 8}
    plain = train(small(), tmp_path / "plain", replicas, **options)
    timed = train(small(), tmp_path / "timed", replicas, **options, timeline=True)
    assert plain["weights_sha256"] == timed["weights_sha256"]
    assert all(one["exchange"] > 0 for one in timed["timeline"])


@pytest.mark.slow
@pytest.mark.parametrize("wire", ["bf16", "powersgd"])
def test_synchronised_batch_norm_exchanges_beside_a_wire(tmp_path: Path, wire: str):
    recipe = small(batch_norm="sync")
    runs = [train(recipe, tmp_path / str(n), 4, wire=wire, bucket_mb=0.02) for n in range(2)]
    assert runs[0]["weights_sha256"] == runs[1]["weights_sha256"]


def test_the_size_of_the_buckets_changes_no_bit_of_exact_mode(
    tmp_path: Path, monkeypatch, way: str
):
    monkeypatch.setattr("lockstep.engine.exchange.connect.NOT_MEASURED", 0)
    runs = [
        train(small(), tmp_path / str(size), 2, exact=True, bucket_mb=size)
        for size in (None, 0.01, 100.0)
    ]
    assert len({run["weights_sha256"] for run in runs}) == 1
    if way == "gloo":
        assert runs[0]["exchange"]["link"]["latency"] > 0
    else:
        assert runs[0]["exchange"]["link"] is None
    assert runs[1]["exchange"]["link"] is None


def test_the_size_of_the_buckets_is_rounding_in_fast_mode(tmp_path: Path, way: str):
    recipe = in_double(small())
    one = weights(recipe, tmp_path / "one", 2)
    assert gap(one, weights(recipe, tmp_path / "many", 2, bucket_mb=0.01)) < ROUNDING


@pytest.mark.usefixtures("gloo")
def test_a_small_model_travels_in_one_bucket_and_nothing_is_measured(tmp_path: Path):
    run = train(small(40, epochs=1), tmp_path / "run", 2)
    terms = run["exchange"]
    assert terms["link"] is None
    assert terms["bucket_bytes"] == terms["gradient_bytes"] == 4 * run["parameters"]
    assert terms["sent_bytes"] == terms["gradient_bytes"]


@pytest.mark.usefixtures("gloo")
def test_bf16_sends_half_of_float32_and_powersgd_less(tmp_path: Path):
    sent = {
        wire: train(small(40, epochs=1), tmp_path / wire, 2, wire=wire)["exchange"]["sent_bytes"]
        for wire in ("fp32", "bf16", "powersgd")
    }
    assert sent["bf16"] * 2 == sent["fp32"]
    assert sent["powersgd"] * 5 < sent["fp32"]


@pytest.fixture(scope="module")
def compressed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, torch.Tensor]:
    out = tmp_path_factory.mktemp("compressed") / "run"
    return weights(in_double(small(epochs=3)), out, 2, wire="powersgd")


@pytest.mark.slow
def test_powersgd_is_the_same_training_on_any_number_of_replicas(tmp_path: Path, compressed):
    recipe = in_double(small(epochs=3))
    many = weights(recipe, tmp_path / "run", 4, wire="powersgd", bucket_mb=0.01)
    assert gap(compressed, many) < ROUNDING


# Four steps an epoch, the first four sent whole: before and after compression has begun.
@pytest.mark.parametrize("stop", [3, pytest.param(6, marks=pytest.mark.slow)])
def test_powersgd_resumes_on_other_replicas_as_if_uninterrupted(
    tmp_path: Path, compressed, stop: int
):
    recipe, out = in_double(small(epochs=3)), tmp_path / "run"
    train(recipe, out, 2, wire="powersgd", checkpoint_every=stop, max_steps=stop)
    resumed = weights(recipe, out, 4, wire="powersgd", resume=True)
    assert gap(compressed, resumed) < ROUNDING


def test_leaving_powersgd_says_what_is_dropped_and_coming_to_it_works(tmp_path: Path, capfd):
    recipe, out = small(epochs=3), tmp_path / "run"
    train(recipe, out, 2, wire="powersgd", checkpoint_every=6, max_steps=6)
    train(recipe, out, 2, resume=True, checkpoint_every=2, max_steps=8)
    assert "PowerSGD had not sent yet" in capfd.readouterr().err
    train(recipe, out, 2, resume=True, wire="powersgd")
    assert "PowerSGD had not sent yet" not in capfd.readouterr().err
