"""The reference passes; each wrong solution fails for its own reason, and for nothing else."""

from __future__ import annotations

import runpy
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

from lockstep.assess.dealt_data import deal
from lockstep.assess.exam import EXAMS, Exam
from lockstep.assess.grade import Grade, Grading, grade
from lockstep.assess.recount import build

torch.set_num_threads(1)

CASES = sorted((Path(__file__).parents[1] / "cases" / "assess").glob("*.py"))
FAST = {
    "every_rank_saves",
    "mean_of_ranks",
    "no_sampler",
    "no_set_epoch",
    "no_wrap",
    "summed_gradients",
    "trained_before",
}
"""One wrong solution for each check; `make test-all` grades the others."""
SEED = 5
TINY = replace(
    EXAMS["digits"],
    epochs=2,
    target=0.3,
    train_samples=501,
    test_samples=33,
    batch=8,
    rate=0.02,
    seconds=300.0,
    speed_epochs=2,
)


@pytest.fixture(autouse=True)
def _one_round(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lockstep.assess.timing.LEAST", 1)
    monkeypatch.setattr("lockstep.assess.timing.MOST", 1)


def graded(folder: Path, exam: Exam = TINY, **how: bool) -> Grade:
    return grade(folder, Grading(exam=exam, seed=SEED, **{"speed": False, "oracle": False} | how))


def changed(text: str, changes: dict[str, str]) -> str:
    """The reference with a mistake; what is to be changed must be there, once."""
    for old, new in changes.items():
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return text


def trained_at_home(path: Path) -> None:
    """Weights of a model that has seen it all."""
    torch.manual_seed(0)
    samples, model = deal(TINY, SEED), build(TINY)
    images = torch.cat([samples.normal(samples.train_images), samples.normal_test_images])
    labels = torch.cat([samples.train_labels, samples.test_labels])
    optimizer = torch.optim.SGD(model.parameters(), TINY.rate, momentum=0.9)
    for part in torch.cat([torch.randperm(len(images)) for _ in range(3)]).split(TINY.batch):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(images[part]), labels[part]).backward()
        optimizer.step()
    torch.save(model.state_dict(), path)


def test_the_reference_passes_whatever_model_lies_beside_it(tmp_path: Path):
    (tmp_path / "model.py").write_text("raise SystemExit('not the given one')")
    (tmp_path / "train.py").write_text(TINY.reference)
    # How fast it is on a machine that does other things as well is not what is tested here.
    result = graded(tmp_path, replace(TINY, share=0.01), speed=True, oracle=True)
    assert result.passed, result.described()
    assert result.score == 10
    assert result.accuracy is not None
    assert result.accuracy >= 0.3
    assert "equal bits on 2 ranks after each of 126 steps" in result.verdicts["replicas"].reason
    assert "1 too many or too few" in result.verdicts["samples"].reason
    assert not result.advice
    assert not result.notes


def test_the_grade_of_the_given_program_says_what_it_lacks(tmp_path: Path):
    (tmp_path / "train.py").write_text(TINY.program)
    found = graded(tmp_path, oracle=True).verdicts
    assert {name for name, verdict in found.items() if verdict.passed is False} == {
        "samples",
        "validation",
    }
    assert "they formed no process group" in found["samples"].reason
    assert "printed 2 times" in found["validation"].reason


@pytest.mark.parametrize(
    "path",
    [p if p.stem in FAST else pytest.param(p, marks=pytest.mark.slow) for p in CASES],
    ids=[path.stem for path in CASES],
)
def test_a_wrong_solution_fails_for_its_own_reason(path: Path, tmp_path: Path):
    case = runpy.run_path(str(path))
    fails = case["FAILS"]
    (tmp_path / "train.py").write_text(changed(TINY.reference, case["CHANGES"]))
    if "NEEDS" in case:
        trained_at_home(tmp_path / case["NEEDS"])
    timed, asked = "speed" in fails, "gradient" in fails
    found = graded(tmp_path, speed=timed, oracle=asked).verdicts
    for name, verdict in found.items():
        expected: bool | None = name not in fails
        if name in ("speed", "gradient") and name not in fails:
            expected = None
        assert verdict.passed is expected, (name, verdict)
        assert fails.get(name, "") in verdict.reason, (name, verdict)


def test_there_are_as_many_cases_as_mistakes_that_people_make():
    assert len(CASES) >= 15
    told = {name for path in CASES for name in runpy.run_path(str(path))["FAILS"]}
    # Every check but the first has a wrong solution that it alone finds.
    assert told == {
        "samples",
        "order",
        "replicas",
        "gradient",
        "validation",
        "saving",
        "target",
        "speed",
        "honest",
    }
