"""Lab 0: a measured learning curve, the law through it, and the task on it."""

from __future__ import annotations

import json
import math

import pytest
import torch

from lockstep.data import digits
from lockstep.labs.lab0_why import learning_curve
from lockstep.labs.lab0_why.learning_curve import Learning
from lockstep.labs.lab0_why.tasks import LAW, NEEDED, TARGET, check_needed
from lockstep.predict.learning_curve import PowerLaw


@pytest.fixture(scope="module")
def measured() -> Learning:
    told = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(learning_curve, "SEEDS", 3)
        patch.setattr(learning_curve, "LEAST_STEPS", 60)
        patch.setattr(learning_curve, "STEPS", 4.0)
        found = learning_curve.curve(
            "digits", digits(), (20, 60, 180, 540, 1400), lambda *a: told.append(a)
        )
    assert [share for share, _ in told] == sorted(share for share, _ in told)
    return found


def made(law: PowerLaw, sizes=(50, 100, 200, 400, 800, 1600, 3200, 6400)) -> Learning:
    errors = [[law.error(m) * f for f in (0.98, 1.0, 1.02)] for m in sizes]
    return Learning(
        data="none",
        model="none",
        device="cpu",
        sizes=list(sizes),
        errors=errors,
        test_samples=1000,
        seconds=0.0,
    )


def test_more_data_make_a_smaller_error(measured: Learning):
    assert len(measured.errors) == 5
    assert {len(seeds) for seeds in measured.errors} == {3}
    # From a third wrong to a few in a hundred: far more than seeds differ.
    assert measured.means[0] > 3 * measured.means[-1]
    assert all(
        0 < spread < mean for spread, mean in zip(measured.spreads, measured.means, strict=True)
    )
    json.dumps(measured.errors)


def test_models_that_are_trained_together_do_not_feel_each_other():
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(2, 30, 8, generator=generator)
    targets = torch.randint(10, (2, 30), generator=generator)
    both = learning_curve.train(inputs, targets, 3, torch.Generator().manual_seed(1))
    changed = torch.stack([inputs[0], -inputs[1]])
    other = learning_curve.train(changed, targets, 3, torch.Generator().manual_seed(1))
    for ours, theirs in zip(both, other, strict=True):
        # The same matrix product within a stack of two.
        assert torch.equal(ours[0], theirs[0])
    assert not torch.equal(both[0][1], other[0][1])


@pytest.mark.parametrize("points", [4, 6, 8])
def test_the_picture_holds_the_law_and_what_was_held_out(points: int):
    found = made(PowerLaw(1.0, -0.3, 0.09))
    figure = learning_curve.figure(found, points, 0.12)
    json.dumps(figure, allow_nan=False)
    named = {trace.get("name"): trace for trace in figure["data"]}
    assert len(named["seen"]["x"]) == points
    assert len(named["held out"]["x"]) == 8 - points
    assert ("Held out" in figure["note"]) == (points < 8)
    assert "An error of 0.12 needs" in figure["note"]


def test_the_picture_changes_with_the_points_and_with_the_target():
    found = made(PowerLaw(1.0, -0.3, 0.09))
    notes = {
        learning_curve.figure(found, points, target)["note"]
        for points in (4, 8)
        for target in (0.1, 0.15)
    }
    assert len(notes) == 4


def test_points_that_make_no_law_are_shown_with_the_reason():
    found = made(PowerLaw(1.0, -0.3, 0.09))
    flat = Learning(**{**vars(found), "errors": [[0.1, 0.11, 0.12]] * 8})
    figure = learning_curve.figure(flat, 8, 0.1)
    assert "does not fall" in figure["note"]
    assert len(figure["data"]) == 2


def test_the_measured_curve_makes_a_law(measured: Learning):
    assert learning_curve.counts(measured) == [4, 5]
    targets = learning_curve.targets(measured)
    assert targets == sorted(targets, reverse=True)
    found = learning_curve.seen(measured, 5)
    assert -4 < found.law.b < -0.05
    json.dumps(learning_curve.figure(measured, 4, targets[3]), allow_nan=False)


def test_the_answer_passes_and_the_starter_does_not():
    assert NEEDED.judge(NEEDED.answer) == []
    assert "subtract c first" in NEEDED.judge(NEEDED.starter)[0]


WRONG = {
    "subtract it first": lambda t, a, b, c: (t / a) ** (1 / b) - c,
    "subtract it on the other side": lambda t, a, b, c: ((t + c) / a) ** (1 / b),
    "a is missing": lambda t, a, b, c: (t - c) ** (1 / b),
    "multiplies by a, so divide": lambda t, a, b, c: ((t - c) * a) ** (1 / b),
    "not after": lambda t, a, b, c: (t - c) ** (1 / b) / a,
    "1/b, not b": lambda t, a, b, c: ((t - c) / a) ** b,
    "b is already negative": lambda t, a, b, c: ((t - c) / a) ** (-1 / b),
    "1/b, not -b": lambda t, a, b, c: ((t - c) / a) ** -b,
    "take exp": lambda t, a, b, c: math.log((t - c) / a) / b,
    "solve for m": lambda t, a, b, c: a * t**b + c,
    "returns nothing": lambda t, a, b, c: None,
    "not a number": lambda t, a, b, c: "400",
    "raises ZeroDivisionError": lambda t, a, b, c: ((t - c) / a) ** (1 / b),
    "complex number": lambda t, a, b, c: math.inf if t == c else ((t - c) / a) ** (1 / b),
    "return math.inf": lambda t, a, b, c: None if t <= c else ((t - c) / a) ** (1 / b),
    "should be 400; yours is 7": lambda t, a, b, c: 7.0,
    "should be 53": lambda t, a, b, c: 400.0 if t > c else math.inf,
}


@pytest.mark.parametrize("says", WRONG)
def test_every_usual_mistake_is_told_by_its_name(says: str):
    (told,) = check_needed({"needed": WRONG[says]})
    assert says in told


def test_whole_numbers_pass_too_and_nothing_does_not():
    def needed(t, a, b, c):
        return math.inf if t <= c else math.ceil(((t - c) / a) ** (1 / b) - 1e-6)

    assert check_needed({"needed": needed}) == []
    assert check_needed({}) == ["There is no function called needed."]
    assert LAW.needed(TARGET) == pytest.approx(400)
