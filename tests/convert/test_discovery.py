"""Rewrites and reasons to refuse are found by their files, in one order."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest

from lockstep.convert import refuse, rewrites
from lockstep.convert.refuse import Stage, all_reasons
from lockstep.convert.rewrites import all_rewrites

REWRITES = [
    "loaders",
    "forwards",
    "evaluation",
    "devices",
    "sizes",
    "rereads",
    "hand_cut_batches",
    "draws",
    "loss",
    "readouts",
    "learning_rate",
    "download",
    "output",
]
"""New rewrites may come between these, but must not change their order."""
REASONS = [
    "not_pytorch",
    "several_processes",
    "environment",
    "replay_buffer",
    "closure",
    "layer_local",
    "by_hand",
    "double_backward",
    "batch_loss",
    "full_graph",
    "no_training",
]
FOUND = {"rewrites": (all_rewrites(), REWRITES), "refuse": (all_reasons(), REASONS)}


def names(modules: list[ModuleType]) -> list[str]:
    return [module.__name__.rpartition(".")[2] for module in modules]


@pytest.mark.parametrize("kind", FOUND)
def test_every_file_of_the_folder_is_found(kind: str):
    package = {"rewrites": rewrites, "refuse": refuse}[kind]
    files = {path.stem for path in Path(package.__path__[0]).glob("*.py")} - {"__init__"}
    assert set(names(FOUND[kind][0])) == files


@pytest.mark.parametrize("kind", FOUND)
def test_the_order_is_total(kind: str):
    orders = [module.ORDER for module in FOUND[kind][0]]
    assert orders == sorted(set(orders))


@pytest.mark.parametrize("kind", FOUND)
def test_the_known_modules_keep_their_order(kind: str):
    found, known = FOUND[kind]
    assert [name for name in names(found) if name in known] == known


def test_every_reason_names_its_stage():
    assert {module.ORDER[0] for module in all_reasons()} == set(Stage)


def test_rewrites_do_not_import_each_other():
    for module in all_rewrites():
        assert module.__file__ is not None
        assert "lockstep.convert.rewrites" not in Path(module.__file__).read_text()
