"""Predictions against published trainings, where the tables of Pollux lie beside the project."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from lockstep.scaling.rates.adascale import predicted_steps

TABLES = Path(__file__).parents[3] / "shared" / "tables" / "pollux"
pytestmark = pytest.mark.skipif(not TABLES.is_dir(), reason="needs the tables of Pollux")

# ResNet-18 on CIFAR-10, rates by AdaScale from batch 128; iterations as published.
ITERATIONS = {256: 20377, 512: 10615, 1024: 5722, 2048: 3178, 4096: 2011}


def rows(batch: int) -> dict[str, list[float]]:
    with (TABLES / f"cifar10-validation-{batch}.csv").open() as file:
        lines = list(csv.DictReader(file))
    return {name: [float(line[name]) for line in lines] for name in lines[0]}


def predicted(batch: int, measured_at: int) -> float:
    table = rows(measured_at)
    return predicted_steps(batch / 128, table["progress"], table["grad_var"], table["grad_sqr"])


@pytest.mark.parametrize("batch", ITERATIONS)
def test_the_statistics_of_a_run_tell_how_many_steps_it_took(batch: int):
    assert rows(batch)["iteration"][-1] == ITERATIONS[batch]
    # One row for each of a hundred stretches, in which the gain is taken as constant.
    assert predicted(batch, batch) == pytest.approx(ITERATIONS[batch], rel=0.07)


@pytest.mark.parametrize(
    ("batch", "error"), [(256, 0.02), (512, 0.09), (1024, 0.21), (2048, 0.45), (4096, 0.72)]
)
def test_the_statistics_of_the_small_batch_alone_predict_too_many_steps(batch: int, error: float):
    ratio = predicted(batch, 128) / ITERATIONS[batch]
    # The noise scale is larger along a run with a larger batch: the further, the more pessimistic.
    assert 1.0 < ratio <= 1.0 + error
