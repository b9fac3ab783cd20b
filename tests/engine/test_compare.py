"""Whether accuracy is retained is a test with a stated margin, not an eyeball."""

from __future__ import annotations

import random

import pytest
import torch
from safetensors.torch import save_file

from lockstep.engine.recipe.builtin import DIGITS
from lockstep.engine.recipe.builtin.line import LINE
from lockstep.engine.run.comparison import compare_mode, judge, largest_difference, retained


def test_equal_results_are_retained():
    assert retained([0.9, 0.8], [0.9, 0.8], margin=0.0)["retained"]


def test_a_clear_loss_is_not_retained():
    assert not retained([0.9, 0.91, 0.92], [0.8, 0.81, 0.83], margin=0.01)["retained"]


def test_noise_larger_than_the_margin_is_not_retained_without_more_seeds():
    assert not retained([0.90, 0.90, 0.90], [0.95, 0.85, 0.90], margin=0.01)["retained"]


def test_a_gain_is_retained():
    assert retained([0.80, 0.81, 0.80], [0.90, 0.91, 0.92], margin=0.01)["retained"]


def test_a_rise_is_a_loss_if_lower_is_better():
    worse = retained([1.0, 1.1], [1.5, 1.6], margin=0.1, lower_is_better=True)
    assert not worse["retained"]
    assert worse["mean_difference"] == pytest.approx(-0.5)


def test_one_seed_is_compared_with_the_margin_and_called_no_test():
    inside, outside = (retained([0.9], [b], margin=0.01) for b in (0.895, 0.885))
    assert inside["retained"]
    assert not outside["retained"]
    assert "no test" in inside["sentence"]
    assert inside["bound"] is None


def test_the_bound_holds_as_often_as_it_says():
    # True difference 0 and margin 0: a test at 95% passes in 5% of the cases (binomial, 3 sigma).
    generator = random.Random(0)
    trials = 2000
    passed = sum(
        retained([0.0] * 5, [generator.gauss(0, 1) for _ in range(5)], margin=0.0)["retained"]
        for _ in range(trials)
    )
    assert abs(passed / trials - 0.05) < 3 * (0.05 * 0.95 / trials) ** 0.5


def summary(folder, name: str, seconds: float, value: float, sha: str, replicas: int) -> dict:
    path = folder / name
    path.mkdir()
    save_file({"w": torch.tensor([1.0, value])}, path / "weights.safetensors")
    return {
        "folder": str(path),
        "seconds": seconds,
        "weights_sha256": sha,
        "replicas": replicas,
        "metrics": {"accuracy": value, "squared_error": value},
    }


def test_speed_up_efficiency_and_differences(tmp_path):
    one = [summary(tmp_path, "a", 10.0, 0.5, "x", 1)]
    many = [summary(tmp_path, "b", 4.0, 0.25, "y", 4)]
    mode = compare_mode(one, many)
    assert mode["speed_up"] == 2.5
    assert mode["efficiency"] == 0.625
    assert mode["largest_difference"] == 0.25
    assert mode["identical"] is False


def test_largest_difference_counts_whole_numbers_and_empty_tensors(tmp_path):
    for name, value in (("a", 3), ("b", 5)):
        (tmp_path / name).mkdir()
        tensors = {"n": torch.tensor(value), "e": torch.empty(0)}
        save_file(tensors, tmp_path / name / "weights.safetensors")
    assert largest_difference(tmp_path / "a", tmp_path / "b") == 2.0


@pytest.mark.parametrize(
    ("identical", "lost", "ok"),
    [(True, 0.0, True), (False, 0.0, False), (True, 0.5, False)],
)
def test_the_verdict_needs_equal_bits_and_the_metric(identical: bool, lost: float, ok: bool):
    def mode(identical: bool, lost: float) -> dict:
        sides = {"one": 0.9, "many": 0.9 - lost}
        runs = {side: [{"metrics": {"accuracy": v}}] for side, v in sides.items()}
        return {**runs, "identical": identical}

    modes = {"fast": mode(False, lost), "exact": mode(identical, 0.0)}
    document = judge(DIGITS, 2, modes, [0], 0.01)
    assert document["verdict"]["ok"] is ok
    assert document["metric"] == "accuracy"


def test_a_lost_metric_is_found_where_lower_is_better():
    runs = {
        "one": [{"metrics": {"squared_error": 0.1}}],
        "many": [{"metrics": {"squared_error": 9}}],
    }
    document = judge(LINE, 2, {"exact": {**runs, "identical": True}}, [0], 0.01)
    assert not document["verdict"]["ok"]
    assert "NOT retained" in document["verdict"]["sentence"]
