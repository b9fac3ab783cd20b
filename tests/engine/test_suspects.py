"""What a piece of code changes is found by name."""

from __future__ import annotations

from typing import Any

from torch import nn

from lockstep.engine.checks.suspects import Suspects


def test_code_that_belongs_to_no_module_is_followed():
    names: dict[str, Any] = {"seen": [], "__name__": None}
    exec("def note():\n    seen.append(0)\ndef loss(batch):\n    note()", names)
    suspects = Suspects([names["loss"]])
    names["loss"](None)
    assert suspects.changed() == ["seen"]


def test_two_models_of_one_class_are_told_apart():
    models = [nn.Linear(2, 3), nn.Linear(4, 5)]
    suspects = Suspects([], models)
    assert suspects.changed() == []
    models[1].calls = 1
    later = Suspects([], models)
    models[1].calls = 2
    assert later.changed() == ["Linear.calls"]


def test_a_number_in_a_list_or_dictionary_is_seen():
    counts, rows = {"calls": 0}, [0]
    suspects = Suspects([lambda: (counts, rows)])
    counts["calls"] += 1
    rows[0] += 1
    assert set(suspects.changed()) >= {"counts", "rows"}
