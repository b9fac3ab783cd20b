"""What tune measures: step times until memory ends, the noise scale, the exchange."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from lockstep import models
from lockstep.console import Console
from lockstep.engine.recipe.job import Job
from lockstep.engine.recipe.recipe import Recipe
from lockstep.errors import PlanError, ReplicaDied
from lockstep.optimizers import Muon
from lockstep.tune import Probe, check_replicas, followed, optimizer_kind
from replicas import small


def plain(**changes: Any) -> Recipe:
    return small(128, **{"model": partial(models.mlp, (64, 16, 10)), "augment": (), **changes})


def probe(recipe: Recipe, folder: Path) -> Probe:
    return Probe(recipe, "cpu", {"speed": "eager"}, folder, Console(as_json=True))


class Limited(nn.Module):
    """Has memory for a number of samples."""

    def __init__(self, most: int, error: Callable[[], Exception]) -> None:
        super().__init__()
        self.layer, self.most, self.error = nn.Linear(64, 10), most, error

    def forward(self, x: Tensor) -> Tensor:
        if self.training and len(x) > self.most:
            raise self.error()
        return self.layer(x.flatten(1))


def no_memory() -> Exception:
    return torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB.")


def test_every_doubling_is_timed_up_to_the_last(tmp_path: Path):
    found = probe(plain(), tmp_path).sizes(48)
    assert list(found.seconds) == [8, 16, 32, 48]
    assert all(seconds > 0 for seconds in found.seconds.values())
    assert all(size > 2**20 for size in found.memory.values())
    assert found.limit == "the largest that the advice could need"


def test_a_recipe_with_a_collate_function_is_measured_too(tmp_path: Path):
    def collate(samples: list[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
        images, labels = zip(*samples, strict=True)
        return torch.stack(images), torch.stack(labels)

    found = probe(plain(collate=collate, channels_last=False), tmp_path)
    noise, summary = found.noise(40)
    assert noise.value > 0
    assert noise.source == "parts of the batch"
    assert summary["parameters"] > 0
    assert list(found.sizes(16).seconds) == [8, 16]


def test_the_end_of_memory_ends_the_search_and_not_the_command(tmp_path: Path):
    recipe = plain(model=partial(Limited, 16, no_memory))
    found = probe(recipe, tmp_path).sizes(128)
    assert list(found.seconds) == [8, 16]
    assert found.limit == "32 do not fit in memory"


def test_a_model_that_never_fits_is_an_error(tmp_path: Path):
    with pytest.raises(ReplicaDied, match="out of memory"):
        probe(plain(model=partial(Limited, 0, no_memory)), tmp_path).sizes(64)


def test_other_errors_are_not_taken_for_a_lack_of_memory(tmp_path: Path):
    recipe = plain(model=partial(Limited, 16, partial(ValueError, "odd shape")))
    with pytest.raises(Exception, match="odd shape"):
        probe(recipe, tmp_path).sizes(64)


def test_the_noise_scale_comes_from_shards_where_there_are_some(tmp_path: Path):
    noise, summary = probe(plain(epochs=20), tmp_path).noise(40)
    assert noise.source == "shards"
    assert noise.steps == 40
    assert noise.critical_batch > 0
    assert noise.low <= noise.value
    assert len(noise.curve) > 1
    assert summary["train_samples"] == 128


def test_one_shard_is_cut_in_two_to_have_something_to_compare(tmp_path: Path):
    noise, _ = probe(plain(shards=1, epochs=20), tmp_path).noise(20)
    assert noise.source == "shards"


def test_synchronised_batch_norm_compares_steps(tmp_path: Path):
    noise, _ = probe(plain(batch_norm="sync", epochs=20), tmp_path).noise(20)
    assert noise.source == "steps"


def test_a_batch_of_one_compares_steps(tmp_path: Path):
    noise, _ = probe(plain(global_batch=1, shards=1, learning_rate=1e-3), tmp_path).noise(40)
    assert noise.source == "steps"


def test_gradients_that_are_zero_have_no_noise_scale(tmp_path: Path):
    def nothing(outputs: Tensor, targets: Tensor) -> Tensor:
        return outputs.sum(1) * 0.0

    with pytest.raises(PlanError, match="the noise scale cannot be estimated from 20 steps"):
        probe(plain(loss=nothing, epochs=20), tmp_path).noise(20)


def test_an_exchange_is_timed_where_the_replicas_are(tmp_path: Path):
    seconds, hides = probe(plain(), tmp_path).exchange(2, 10_000)
    assert seconds > 0
    assert not hides


@pytest.mark.usefixtures("gloo")
def test_an_exchange_over_gloo_goes_on_beside_backward(tmp_path: Path):
    assert probe(plain(), tmp_path).exchange(2, 10_000)[1]


@pytest.mark.parametrize(
    ("optimizer", "kind"),
    [
        (torch.optim.SGD, ("sgd", (0.9, 0.999))),
        (partial(torch.optim.SGD, momentum=0.9), ("sgd", (0.9, 0.999))),
        (partial(torch.optim.AdamW, betas=(0.8, 0.95)), ("adam", (0.8, 0.95))),
        (partial(partial(torch.optim.Adam, eps=1e-6), weight_decay=0.1), ("adam", (0.9, 0.999))),
        (Muon, ("other", (0.9, 0.999))),
        (lambda p, lr: torch.optim.SGD(p, lr), ("other", (0.9, 0.999))),
    ],
)
def test_optimizers_are_known_by_how_their_rate_scales(optimizer, kind):
    assert optimizer_kind(plain(optimizer=optimizer)) == kind


def test_a_recipe_that_follows_advice_is_a_recipe(tmp_path: Path):
    advice = {"global_batch": 64, "shards": 8, "learning_rate": 0.1, "epochs": 3, "warmup": 0.5}
    advice |= {"warmup_start": 0.25, "betas": (0.5, 0.9)}
    recipe = followed(plain(optimizer=torch.optim.Adam), advice)
    assert (recipe.global_batch, recipe.shards, recipe.epochs) == (64, 8, 3)
    assert recipe.optimizer.keywords == {"betas": (0.5, 0.9)}
    Job(recipe=recipe, out=tmp_path, replicas=8)
    untouched = followed(plain(), advice | {"betas": None})
    assert untouched.optimizer is plain().optimizer
    assert replace(untouched).learning_rate == 0.1


@pytest.mark.parametrize("text", ["", "two", "1,x", "1,,2"])
def test_replicas_that_are_no_numbers_are_refused(text: str):
    with pytest.raises(PlanError, match="give numbers, such as 1,2,4,8"):
        check_replicas(text)


@pytest.mark.parametrize("text", ["3", "0", "-2", "1,2,6"])
def test_replicas_that_cut_no_batch_evenly_are_refused(text: str):
    with pytest.raises(PlanError, match="no power of two"):
        check_replicas(text)
