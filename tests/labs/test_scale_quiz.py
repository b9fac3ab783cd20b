"""The quiz of lab 3 stays right whatever was measured."""

from __future__ import annotations

from dataclasses import asdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstep.labs.lab3_scale import quiz
from lockstep.labs.lab3_scale.batch_norm import Norms
from lockstep.labs.lab3_scale.rate_grid import Explored
from lockstep.labs.lab3_scale.runs import Run, Runs
from lockstep.labs.lab3_scale.throughput import Throughput, amdahl
from lockstep.labs.lab3_scale.warmup import Warmups


def speed(ratio: float, replicas: int = 2) -> Throughput:
    return Throughput(
        device="cpu",
        model="a model",
        replicas=[1, replicas],
        batch=64,
        each=[[1000.0], [1000.0 * ratio]],
        shared=[[1000.0], [1000.0 * ratio]],
        gradient_bytes=1000,
    )


def raced(*seconds: float | None) -> Runs:
    """Runs that reach 0.96 after this number of seconds, or never."""
    each = [
        Run(
            name=f"run {n}",
            short=str(n),
            steps=[1],
            seconds=[9.0 if s is None else s],
            accuracy=[0.2 if s is None else 0.96],
            diverged=False,
        )
        for n, s in enumerate(seconds)
    ]
    return Runs(
        device="cpu", replicas=2, runs=[asdict(r) for r in each], difference=0.0, identical=True
    )


def explored(critical: float) -> Explored:
    batches = [8, 16, 32, 64, 128, 256, 512]
    steps = [[round(20 * (1 + critical / b)), 10**7] for b in batches]
    losses = [[[[[0.1]]], [[[0.1]]]] for _ in batches]
    return Explored(
        samples=1000,
        batches=batches,
        rates=[0.1],
        momenta=[0.0],
        seeds=1,
        steps=steps,
        accuracy=losses,
        loss=losses,
    )


def warmups(without: float, rescued: float, replicas: int) -> Warmups:
    return Warmups(
        each=16,
        replicas=[replicas],
        rates=[1.41],
        warmups=[0, 4],
        epochs=[[8.0]],
        accuracy=[[[[[without], [rescued]]]]],
    )


def norms(own: list[float], synced: list[float]) -> Norms:
    return Norms(
        batch=128,
        locals=[2, 128],
        shard=16,
        rates=[0.3],
        epochs=1,
        local=[[[own]], [[synced]]],
        ghost=[[synced]],
        synced=[[synced]],
    )


def test_five_questions_from_measured_numbers():
    found = quiz.questions(
        speed(1.6),
        raced(2.0, 1.0, None, 4.0, None, 3.0),
        explored(30),
        warmups(0.2, 0.9, 4),
        norms([0.6, 0.7], [0.97, 0.98]),
    )
    assert len(found) == 5
    assert [question.answer for question in found] == [
        "about 4.0x",
        "run 1",
        "5%",
        "0.352",
        "Synchronised ones: every seed was better with them",
    ]
    for question in found:
        assert 3 <= len(question.choices) <= 4
        assert question.why


@given(ratio=st.floats(0.2, 8.5), replicas=st.sampled_from([2, 4, 8]))
def test_the_limit_is_amdahls_whatever_the_ratio(ratio: float, replicas: int):
    question = quiz._limit(speed(ratio, replicas))
    assert len(question.choices) >= 3
    if ratio <= 1:
        assert question.answer == "about 1.0x"
    elif ratio >= replicas:
        assert question.answer.startswith("there is no limit")
    elif not question.answer.startswith("without"):
        most = float(question.answer.removeprefix("about ").removesuffix("x"))
        share = 1 / most
        # A digit behind the point is what the choice shows.
        assert amdahl(replicas, share) == pytest.approx(ratio, rel=0.06)


@given(st.lists(st.none() | st.floats(0.1, 60.0), min_size=4, max_size=6))
def test_the_first_run_is_the_first(seconds: list[float | None]):
    question = quiz._first(raced(*seconds))
    reached = [s for s in seconds if s is not None]
    number = int(question.answer.split()[1])
    if reached:
        assert seconds[number] == min(reached)
    for choice in question.choices[1:]:
        if choice == "none of them":
            continue
        other = seconds[int(choice.split()[1])]
        assert other is None or not reached or other > min(reached)


@given(st.floats(1.0, 5000.0))
def test_a_doubling_saves_what_the_fit_says(critical: float):
    question = quiz._doubling(explored(critical))
    assert len(question.choices) >= 3
    saved = int(question.answer.removesuffix("%")) / 100
    # Steps are whole in the grid, so the fit differs a little.
    assert saved == pytest.approx(critical / (2 * (256 + critical)), abs=0.03)


@given(st.sampled_from([2, 4, 8, 16]))
def test_a_warmup_begins_at_the_rate_over_the_world_size(replicas: int):
    question = quiz._start(warmups(0.1, 0.9, replicas))
    assert float(question.answer) == pytest.approx(1.41 / replicas, rel=0.01)


@pytest.mark.parametrize(
    ("own", "synced", "told"),
    [
        ([0.5, 0.6], [0.9, 0.95], "Synchronised"),
        ([0.9, 0.95], [0.5, 0.6], "Each replica's own"),
        ([0.9, 0.96], [0.95, 0.97], "Neither"),
    ],
)
def test_statistics_are_judged_by_the_seeds(own: list[float], synced: list[float], told: str):
    assert quiz._statistics(norms(own, synced)).answer.startswith(told)
