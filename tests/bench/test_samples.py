"""The data of the works are what they say they are."""

from __future__ import annotations

import pytest
import torch

from lockstep.bench.synthetic_data import Repeated, images, text
from lockstep.bench.works import WORKS
from lockstep.data import Resident


def test_repeated_samples_are_the_same_samples_in_a_longer_epoch():
    few = images(4, (1, 2, 2), 2)
    many = Repeated(few, 3)
    assert isinstance(many, Resident)
    assert len(many) == 12
    taken = many.take(torch.tensor([1, 5, 9]))
    for part, own in zip(taken, few[1], strict=True):
        assert all(torch.equal(row, own) for row in part)
    assert torch.equal(many[11][0], few[3][0])
    assert many.nbytes == few.nbytes


def test_tokens_lie_in_the_vocabulary_and_small_ones_are_common():
    windows = text(50, 8, 100)
    inputs, targets = windows.take(torch.arange(50))
    assert inputs.shape == targets.shape == (50, 8)
    assert inputs.min() >= 0
    assert inputs.max() < 100
    assert (inputs < 50).float().mean() > 0.7


def test_each_device_has_its_works():
    def measured_on(device: str) -> list[str]:
        return [name for name, work in WORKS.items() if device in work.devices]

    assert list(WORKS) == ["mlp", "wrn-16-2", "wrn-16-10", "wrn-16-10-512", "resnet50", "gpt"]
    assert measured_on("cpu") == ["mlp", "wrn-16-2"]
    assert measured_on("cuda") == ["mlp", "wrn-16-10", "wrn-16-10-512", "resnet50", "gpt"]


@pytest.mark.parametrize("replicas", [1, 4])
def test_the_recipe_of_a_work_gives_every_replica_its_batch(replicas: int):
    work = WORKS["mlp"]
    recipe = work.recipe(images(8, (1, 28, 28), 10), replicas, "bf16")
    assert (recipe.global_batch, recipe.shards) == (64 * replicas, replicas)
    assert recipe.precision == "bf16"
