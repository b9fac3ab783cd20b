"""Scripts that data parallelism would change are refused for the right reason, others are kept."""

from __future__ import annotations

from pathlib import Path

import pytest

from lockstep.convert.refuse import Refusal, refusals
from lockstep.source.programs import programs
from lockstep.source.reading import parse, read_script
from lockstep.source.training import Training

ROOT = Path(__file__).parent.parent.parent
CASES = ROOT / "tests" / "cases" / "convert"
REFUSED = sorted((CASES / "refused").glob("*.py"))
KEPT = sorted((CASES / "kept").glob("*.py"))
MARK = "# refused: "


def refused(path: Path) -> list[Refusal]:
    (program,) = programs([read_script(path)])
    return refusals(Training(program))


def refused_text(text: str) -> list[Refusal]:
    (program,) = programs([parse(Path("train.py"), text)])
    return refusals(Training(program))


@pytest.mark.parametrize("path", KEPT, ids=lambda p: p.stem)
def test_a_script_that_can_be_divided_is_not_refused(path: Path):
    assert [(r.name, r.script.code(r.node)) for r in refused(path)] == []


@pytest.mark.parametrize("path", REFUSED, ids=lambda p: p.stem)
def test_a_method_that_would_change_is_refused_for_its_reason(path: Path):
    expected = path.read_text().splitlines()[0].removeprefix(MARK).split(", ")
    assert [r.name for r in refused(path)] == expected


@pytest.mark.parametrize("path", REFUSED, ids=lambda p: p.stem)
def test_a_refusal_says_why_and_what_to_do_in_a_sentence_each(path: Path):
    for refusal in refused(path):
        assert refusal.script.place(refusal.node).start.line > 0
        assert len(refusal.reason) > 30
        assert not refusal.reason.endswith(".")
        assert refusal.advice.endswith(".")


def test_every_reason_has_a_case():
    folder = ROOT / "src" / "lockstep" / "convert" / "refuse"
    reasons = {p.stem for p in folder.glob("*.py") if "\ndef look(" in p.read_text()}
    marks = [p.read_text().splitlines()[0].removeprefix(MARK).split(", ") for p in REFUSED]
    assert {name for names in marks for name in names} == reasons


@pytest.mark.parametrize(
    "path", sorted((ROOT / "tests" / "cases" / "doctor").rglob("good_*.py")), ids=lambda p: p.stem
)
def test_scripts_that_train_on_several_replicas_are_no_matter_of_refusals(path: Path):
    assert refused(path) == []


def test_a_refusal_names_the_place_where_the_trail_is_lost():
    (refusal,) = refused(CASES / "refused" / "no_training_hidden_loader.py")
    assert refusal.script.code(refusal.node).startswith("make_stream(")
    assert "line 10" in refusal.reason


def test_a_backward_outside_of_any_loop_is_no_training():
    (refusal,) = refused_text("import torch\nx = torch.ones(1, requires_grad=True)\nx.backward()\n")
    assert refusal.name == "no_training"
    assert "line 3" in refusal.reason


def test_an_empty_script_has_no_training():
    assert [r.name for r in refused_text("")] == ["no_training"]
