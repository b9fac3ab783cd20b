"""Lab 0: the quiz stays right whatever was measured, and measurements run in their own process."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lockstep.engine.step.timeline import PARTS, WAITING
from lockstep.labs.lab0_why.learning_curve import Learning
from lockstep.labs.lab0_why.parallelism import BATCHES, DATA, MODEL, ONE, WIDTHS, Ways
from lockstep.labs.lab0_why.quiz import questions
from lockstep.labs.lab0_why.step_parts import Steps
from lockstep.predict.learning_curve import PowerLaw


def curve(b: float, c: float, bend: float) -> Learning:
    sizes = [50 * 2**n for n in range(8)]
    law = PowerLaw(1.5, b, c)
    # A curve that bends away from its own beginning: early points promise too much or too little.
    errors = [
        [law.error(m) * (m / 50) ** (bend * (m > 400)) * f for f in (0.98, 1.0, 1.02)]
        for m in sizes
    ]
    return Learning(
        data="none",
        model="none",
        device="cpu",
        sizes=sizes,
        errors=errors,
        test_samples=1000,
        seconds=1.0,
    )


def both_ways() -> Ways:
    rows = [
        {
            "width": width,
            "batch": batch,
            "way": way,
            "messages": [1] * processes,
            "sent": [1000] * processes,
            **{part: [1000] * processes for part in ("parameters", "gradients", "optimizer")},
            "activations": [10 * batch] * processes,
            "seconds": 0.01,
            "differs": 0.0,
        }
        for width in WIDTHS
        for batch in BATCHES
        for way, processes in ((ONE, 1), (DATA, 2), (MODEL, 2))
    ]
    return Ways(device="cpu", processes=2, micro_batches=4, rows=rows)


def steps(alone: float, both: float) -> Steps:
    parts = dict.fromkeys((*PARTS, WAITING), 1.0)
    runs = [
        {
            "replicas": n,
            "step": [ms] * n,
            "parts": [parts] * n,
            "lanes": [{"step": [[PARTS[0], 0.0, ms], [WAITING, ms, 2 * ms]], "beside": []}] * n,
            "pace": [],
        }
        for n, ms in ((1, alone), (2, both))
    ]
    return Steps(
        device="cpu", model="none", local_batch=64, gradients=[1], exchange_ms=1.0, runs=runs
    )


@settings(max_examples=50)
@given(
    b=st.floats(-0.9, -0.08),
    c=st.floats(0, 0.1),
    bend=st.floats(-0.05, 0.02),
    alone=st.floats(1, 100),
    slower=st.floats(0.9, 3),
)
def test_questions_stay_sound_whatever_was_measured(b, c, bend, alone, slower):
    asked = questions(curve(b, c, bend), both_ways(), steps(alone, alone * slower))
    assert len(asked) == 5
    for question in asked:
        assert 3 <= len(question.choices) <= 4
        assert question.why
    # Two replicas that take as long as one make twice as many images.
    assert float(asked[4].answer.split()[0]) == pytest.approx(2 / slower, abs=0.006)


def test_the_right_answer_follows_what_was_measured():
    optimistic, careful, right = (
        questions(curve(-0.3, c, bend), both_ways(), steps(10, 12))[1]
        for c, bend in ((0.0, 0.03), (0.0, -0.05), (0.05, 0.0))
    )
    assert "too much" in optimistic.answer
    assert "too cautious" in careful.answer
    assert "within a tenth" in right.answer
    # The law's own number is told.
    assert "10 times" in questions(curve(-0.301, 0.0, 0.0), both_ways(), steps(10, 12))[0].answer
