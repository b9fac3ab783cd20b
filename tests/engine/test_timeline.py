"""The fifteen parts of a step, measured."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from lockstep import models
from lockstep.data import Watch
from lockstep.engine.step.timeline import BETWEEN, EXCHANGE, PARTS, WAITING, Timeline, layers_of
from replicas import small, train


def test_there_are_fifteen_parts():
    assert len(PARTS) == len(set(PARTS)) == 15


@pytest.mark.parametrize(("replicas", "exact"), [(1, False), (2, False), (2, True)])
def test_a_run_reports_every_part_of_every_replica(tmp_path: Path, replicas: int, exact: bool):
    run = train(small(epochs=1), tmp_path / "run", replicas, exact=exact, timeline=True)
    assert len(run["timeline"]) == replicas
    for one in run["timeline"]:
        assert set(one["parts"]) == {*PARTS, WAITING}
        busy = [name for name in PARTS if name not in ("transport", "queue", PARTS[4])]
        assert all(one["parts"][name] > 0 for name in busy)
        # The parts are the step: nothing is left out and nothing counted twice.
        assert sum(one["parts"].values()) == pytest.approx(one["step"], rel=1e-6)
        assert (one["exchange"] > 0) == (replicas > 1)
        assert (one["parts"][WAITING] > 0) == (replicas > 1)


def test_marks_follow_each_other_without_gaps(tmp_path: Path):
    run = train(small(epochs=1), tmp_path / "run", 2, timeline=True)
    for one in run["timeline"]:
        *others, last = one["detail"]
        for step in one["detail"]:
            starts = [start for _, start, _ in step["step"]]
            assert starts == sorted(starts)
        for step in others:  # the last one is interrupted by the evaluation
            assert [s for _, s, _ in step["step"]][1:] == [e for _, _, e in step["step"]][:-1]
        assert last["step"]
        for step in one["detail"]:
            assert {part for part, _, _ in step["beside"]} == {EXCHANGE}


def test_with_workers_reading_happens_beside_the_step(tmp_path: Path):
    run = train(small(epochs=1), tmp_path / "run", timeline=True, resident=False, workers=1)
    one = run["timeline"][0]
    assert one["parts"]["read data"] > 0
    assert one["parts"]["queue"] > 0
    assert {part for part, _, _ in one["detail"][-1]["beside"]} == {"read data", "transport"}


@pytest.mark.parametrize("exact", [False, True])
def test_measuring_changes_no_bit(tmp_path: Path, exact: bool):
    runs = [train(small(), tmp_path / str(on), 2, exact=exact, timeline=on) for on in (False, True)]
    assert runs[0]["weights_sha256"] == runs[1]["weights_sha256"]
    assert "timeline" not in runs[0]


def test_the_time_between_two_steps_is_no_part_of_them():
    timeline = Timeline(torch.device("cpu"))
    timeline.begin()
    timeline.mark("output")
    timeline.mark(BETWEEN)
    timeline.mark("loss")
    spans = timeline.steps[-1]
    assert [span.part for span in spans] == ["output", "loss"]
    assert spans[1].start >= spans[0].end


def test_old_steps_are_forgotten():
    timeline = Timeline(torch.device("cpu"))
    for _ in range(500):
        timeline.begin()
        timeline.mark("output")
    assert len(timeline.steps) == len(timeline.beside) == 200


def test_a_watch_that_does_not_listen_keeps_nothing():
    watch = Watch()
    watch.mark("output")
    watch.span("read data", 0.0, 1.0)
    assert not vars(watch)


@pytest.mark.parametrize(
    ("model", "number"),
    [
        (models.wideresnet(16, 1), 9),
        (models.gpt(3, 32), 8),
        (nn.Linear(1, 1), 0),
        (nn.Sequential(nn.Sequential(nn.Linear(1, 1), nn.ReLU()), nn.Linear(1, 1)), 3),
    ],
)
def test_layers_are_found_inside_containers(model: nn.Module, number: int):
    assert len(list(layers_of(model))) == number


def test_a_model_of_one_layer_is_measured_too(tmp_path: Path):
    from lockstep.engine.recipe.builtin.line import LINE

    run = train(LINE, tmp_path / "run", 2, timeline=True, max_steps=6)
    assert run["timeline"][0]["parts"]["output"] > 0
