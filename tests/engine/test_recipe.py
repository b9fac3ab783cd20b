"""Recipes: what contradicts itself is refused, and what is meant can be told in words."""

from __future__ import annotations

import json
import math
from dataclasses import FrozenInstanceError, replace
from functools import partial
from pathlib import Path

import pytest
import torch

from lockstep.data import flip, pad_crop
from lockstep.engine.recipe.builtin import DIGITS, RECIPES
from lockstep.engine.recipe.builtin.line import LINE
from lockstep.engine.recipe.job import Job, Speed
from lockstep.engine.recipe.recipe import BatchNorm, Precision, Recipe, describe
from lockstep.errors import RecipeError, UsageError
from lockstep.scaling.rates.schedules import cosine
from replicas import small


@pytest.mark.parametrize("name", ["global_batch", "shards", "epochs"])
@pytest.mark.parametrize("value", [0, -1, 1.5, 2.0, "4", None], ids=str)
def test_counts_that_are_no_whole_numbers_above_zero_are_refused(name: str, value):
    with pytest.raises(RecipeError, match=f"{name} is {value!r}; it must be a whole number of 1"):
        small(**{name: value})


@pytest.mark.parametrize("name", ["global_batch", "shards", "epochs"])
def test_a_count_of_one_is_accepted(name: str):
    assert getattr(small(warmup=0.0, **{name: 1}), name) == 1


@pytest.mark.parametrize("rate", [0, 0.0, -0.1, math.inf, math.nan])
def test_a_learning_rate_that_is_not_above_zero_is_refused(rate: float):
    with pytest.raises(RecipeError, match=r"learning_rate is .*; it must be above 0"):
        small(learning_rate=rate)


@pytest.mark.parametrize("warmup", [-0.1, 2.1, math.inf, math.nan])
def test_a_warmup_outside_the_run_is_refused(warmup: float):
    with pytest.raises(RecipeError, match=r"warmup is .* epochs of 2; use 0 to 2"):
        small(epochs=2, warmup=warmup)


@pytest.mark.parametrize("start", [-0.1, 1.1, math.nan])
def test_a_warmup_that_starts_outside_the_rate_is_refused(start: float):
    with pytest.raises(RecipeError, match="a share of the rate, 0 to 1"):
        small(warmup_start=start)


@pytest.mark.parametrize("warmup", [0, 0.5, 2])
def test_a_warmup_inside_the_run_is_accepted(warmup: float):
    assert small(epochs=2, warmup=warmup).warmup == warmup


@pytest.mark.parametrize("clip", [0, -1.0, math.nan])
def test_a_clip_that_is_not_above_zero_is_refused(clip: float):
    with pytest.raises(RecipeError, match=r"clip is .*; it must be above 0, or none"):
        small(clip=clip)


@pytest.mark.parametrize("clip", [None, 1e-3, 5])
def test_a_clip_above_zero_or_none_is_accepted(clip):
    assert small(clip=clip).clip == clip


def test_an_unknown_precision_is_refused_with_those_that_are_known():
    with pytest.raises(RecipeError, match="precision is 'fp8'; known: fp32, tf32, bf16"):
        small(precision="fp8")


def test_an_unknown_batch_norm_is_refused_with_those_that_are_known():
    with pytest.raises(RecipeError, match="batch_norm is 'none'; known: shard, sync"):
        small(batch_norm="none")


def test_a_recipe_without_metrics_is_refused():
    with pytest.raises(RecipeError, match="metrics is empty; name at least one"):
        small(metrics={})


@pytest.mark.parametrize("name", ["model", "data", "loss", "optimizer", "schedule"])
@pytest.mark.parametrize("value", ["cosine", 3, None], ids=str)
def test_a_field_that_must_be_a_function_refuses_other_values(name: str, value):
    with pytest.raises(RecipeError, match=rf"{name} is {value!r}; .*functools\.partial"):
        small(**{name: value})


def test_refusals_are_usage_errors_and_end_in_exit_code_2():
    with pytest.raises(UsageError) as error:
        small(epochs=0)
    assert error.value.exit_code == 2


def test_recipes_are_frozen_and_keyword_only():
    with pytest.raises(FrozenInstanceError):
        DIGITS.epochs = 3  # type: ignore[misc]
    with pytest.raises(TypeError):
        Recipe("digits")  # type: ignore[call-arg,misc]


def test_the_first_metric_is_the_one_that_is_compared():
    metrics = {"error": DIGITS.loss, **DIGITS.metrics}
    assert DIGITS.metric == "accuracy"
    assert replace(DIGITS, metrics=metrics).metric == "error"


def test_a_target_is_reached_from_the_right_side():
    up = replace(DIGITS, target=0.9)
    assert (up.reaches_target(0.9), up.reaches_target(0.95), up.reaches_target(0.89)) == (
        True,
        True,
        False,
    )
    down = replace(LINE, target=0.1)
    assert (down.reaches_target(0.1), down.reaches_target(0.05), down.reaches_target(0.2)) == (
        True,
        True,
        False,
    )


def test_without_a_target_none_is_reached_nor_is_one_by_nan():
    assert not replace(DIGITS, target=None).reaches_target(1.0)
    assert not replace(DIGITS, target=0.5).reaches_target(math.nan)


@pytest.mark.parametrize("recipe", RECIPES.values(), ids=RECIPES)
def test_every_built_in_recipe_can_be_written_as_json(recipe: Recipe):
    words = recipe.described()
    assert json.loads(json.dumps(words)) == words
    assert words["name"] == recipe.name
    assert "<" not in json.dumps(words)


def test_a_description_shows_functions_as_they_would_be_typed():
    words = replace(DIGITS, augment=(partial(pad_crop, padding=1), flip)).described()
    assert words["model"] == "wideresnet(depth=10, width=3, channels=1, dropout=0.1)"
    assert words["augment"] == ["pad_crop(padding=1)", "flip"]
    assert words["metrics"] == {"accuracy": "accuracy"}
    assert words["schedule"] == "cosine"
    assert words["optimizer"] == "SGD(momentum=0.9, nesterov=True, weight_decay=0.0005)"
    assert (words["global_batch"], words["clip"], words["lower_is_better"]) == (256, None, False)


@pytest.mark.parametrize(
    "changes",
    [
        {"seed": 1},
        {"global_batch": 64},
        {"schedule": partial(cosine, floor=0.1)},
        {"augment": ()},
        {"augment": (partial(pad_crop, padding=2),)},
        {"optimizer": torch.optim.AdamW},
        {"clip": 1.0},
        {"precision": "bf16"},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_descriptions_tell_two_recipes_apart(changes: dict):
    assert replace(DIGITS, **changes).described() != DIGITS.described()


def test_equal_recipes_have_equal_descriptions():
    assert (
        replace(DIGITS, augment=(partial(pad_crop, padding=1),)).described() == DIGITS.described()
    )


class Ramp:
    def __call__(self, progress: float) -> float:
        return progress


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (3, 3),
        ("text", "text"),
        (None, None),
        (True, True),
        ((1, "a"), [1, "a"]),
        (cosine, "cosine"),
        (partial(cosine, 0.5, floor=0.1), "cosine(0.5, floor=0.1)"),
        (partial(cosine, floor=partial(abs, 1)), "cosine(floor=abs(1))"),
        (torch.optim.SGD, "SGD"),
        (Ramp(), "Ramp"),
        ({"a": cosine}, {"a": "cosine"}),
    ],
)
def test_values_are_described_in_words_and_numbers(value, words):
    assert describe(value) == words


def test_names_of_choices_become_members_and_leave_as_names():
    recipe = replace(DIGITS, precision="bf16", batch_norm="sync")
    assert recipe.precision is Precision.BF16
    assert recipe.batch_norm is BatchNorm.SYNC
    assert recipe == replace(DIGITS, precision=Precision.BF16, batch_norm=BatchNorm.SYNC)
    described = recipe.described()
    assert (type(described["precision"]), type(described["batch_norm"])) == (str, str)
    assert json.dumps([described["precision"], described["batch_norm"]]) == '["bf16", "sync"]'


def test_a_job_takes_the_names_of_its_choices(tmp_path: Path):
    job = Job(recipe=DIGITS, out=tmp_path, speed="eager", wire="bf16")
    assert job.speed is Speed.EAGER
    assert job.compression.name == "bf16"


def test_a_batch_has_a_growth_only_if_it_can_grow():
    assert DIGITS.growth(1000) is None
    assert replace(DIGITS, grow_to=DIGITS.global_batch).growth(1000) is None
    growth = replace(DIGITS, grow_to=4 * DIGITS.global_batch).growth(1000)
    assert growth is not None
    assert growth.most == 4
