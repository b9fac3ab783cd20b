"""What people can name on the command line is found where it is defined, and does not get lost."""

from __future__ import annotations

from pathlib import Path

import pytest

import lockstep
from lockstep.engine.exchange.compression import COMPRESSIONS
from lockstep.engine.recipe.builtin import RECIPES
from lockstep.engine.recipe.known import KNOWN

SOURCE = Path(lockstep.__file__).parent
NAMES = {
    "model": "gpt line mlp quicknet resnet50 wideresnet",
    "data": "cifar10 digits fashion-mnist folder line stdlib synthetic",
    "loss": "cross_entropy squared_error",
    "metrics": "accuracy bits_per_byte squared_error",
    "optimizer": "adam adamw lamb larc lars muon novograd sgd",
    "schedule": "constant cosine linear one_cycle polynomial step triangle",
    "augment": "cutout flip flip_alternating pad_crop",
}


@pytest.mark.parametrize("kind", NAMES)
def test_flags_can_name_these_functions(kind: str):
    assert sorted(KNOWN[kind]) == NAMES[kind].split()
    assert KNOWN.keys() == NAMES.keys()


def test_these_recipes_are_built_in():
    names = "cifar10 cifar10-fast digits fashion-mnist line resnet50 stdlib"
    assert sorted(RECIPES) == names.split()
    assert all(recipe.name == name for name, recipe in RECIPES.items())


def test_gradients_as_they_are_come_first_among_the_compressions():
    assert list(COMPRESSIONS) == ["fp32", "bf16", "powersgd"]
    assert [c.changes_gradients for c in COMPRESSIONS.values()] == [False, True, True]


@pytest.mark.parametrize(
    ("folder", "found", "others"),
    [
        ("engine/recipe/builtin", len(RECIPES), 0),
        ("engine/exchange/compression", len(COMPRESSIONS), 1),
        # Three optimizers are torch's.
        ("scaling/optimizers", len(KNOWN["optimizer"]) - 3, 1),
    ],
)
def test_every_file_of_a_kind_is_found(folder: str, found: int, others: int):
    files = [path for path in (SOURCE / folder).glob("*.py") if path.stem != "__init__"]
    assert len(files) == found + others
