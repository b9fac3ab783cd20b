"""Lab 0: a step in fifteen parts, measured, predicted and played."""

from __future__ import annotations

import json
from inspect import unwrap
from itertools import pairwise
from typing import Any

import pytest
import torch

from lockstep import models
from lockstep.engine.step.timeline import EXCHANGE, PARTS, WAITING
from lockstep.labs.lab0_why import step_animation, step_parts
from lockstep.labs.lab0_why.step_animation import link_bandwidth, predicted, step_ms
from lockstep.labs.lab0_why.step_parts import Steps, by_thirds, described


@pytest.fixture(scope="module")
def measured() -> Steps:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(step_parts, "STEPS", 5)
        patch.setattr(step_parts, "LOCAL_BATCH", 16)
        patch.setattr(step_parts, "gpu_count", lambda: 0)
        return unwrap(step_parts.measure)(lambda share, what: None)


def made(compute: float = 10.0) -> Steps:
    """A step of 1 ms for each part, backward `compute` ms each; no replica slower than another."""
    lengths = dict.fromkeys(PARTS, 1.0) | dict.fromkeys(PARTS[9:12], compute)
    spans: list[list[Any]] = []
    at = 0.0
    for _ in range(2):
        for part in (PARTS[3], PARTS[4], PARTS[2], *PARTS[5:]):
            spans.append([part, at, at + lengths[part]])
            at += lengths[part]
    one = {
        "replicas": 1,
        "step": [at / 2],
        "parts": [lengths | {WAITING: 0.0}],
        "lanes": [{"step": spans, "beside": []}],
        "pace": [[1.0, 1.0]],
    }
    return Steps(
        device="cpu",
        model="none",
        local_batch=64,
        gradients=[1000, 1000, 1000],
        exchange_ms=3.0,
        runs=[one],
    )


def test_one_and_two_replicas_are_measured_in_all_parts(measured: Steps):
    assert [run["replicas"] for run in measured.runs] == [1, 2]
    for run in measured.runs:
        assert len(run["lanes"]) == len(run["parts"]) == len(run["step"]) == run["replicas"]
        for lane, parts in zip(run["lanes"], run["parts"], strict=True):
            seen = {part for part, _, _ in lane["step"]}
            assert seen >= {PARTS[2], *PARTS[5:]}
            assert all(parts[name] > 0 for name in PARTS)
            # Workers read beside the step.
            assert {part for part, _, _ in lane["beside"]} >= set(PARTS[:2])
            assert (WAITING in seen) == (run["replicas"] > 1)
    assert measured.exchange_ms > 0


def test_spans_of_a_lane_follow_each_other_from_the_start(measured: Steps):
    for run in measured.runs:
        assert min(lane["step"][0][1] for lane in run["lanes"]) == 0.0
        for lane in run["lanes"]:
            starts = [start for _, start, _ in lane["step"]]
            assert starts == sorted(starts)
            assert all(end >= start for _, start, end in lane["step"])


def test_measurements_are_kept_as_json(measured: Steps):
    assert Steps(**json.loads(json.dumps(vars(measured)))) == measured


def test_gradients_are_those_of_the_model(measured: Steps):
    model = models.wideresnet(depth=10, width=1, channels=1)
    assert sum(by_thirds(model)) == sum(p.nbytes for p in model.parameters())
    assert measured.gradients == by_thirds(model)


def test_a_step_whose_exchange_is_hidden_takes_no_longer_on_more_gpus():
    found = made()
    alone = step_ms(predicted(found, 1, None))
    # 1 kB at 1 GB/s: microseconds, of which the last bucket's and a latency of 50 stay.
    many = step_ms(predicted(found, 8, 1e9))
    assert alone < many < alone + 0.06


def test_a_thin_link_makes_everybody_wait():
    found = made()
    lanes = predicted(found, 2, 1e5)
    # Three buckets of 1 kB at 100 kB/s: 10.05 ms each. They start as backward of layer 3 ends,
    # which leaves 20 ms of backward to hide behind.
    for lane in lanes:
        waited = [end - start for part, start, end in lane["step"] if part == WAITING]
        assert waited == [pytest.approx(3 * 10.05 - 20)] * 2
    assert sum(part == EXCHANGE for part, _, _ in lanes[0]["beside"]) == 6


def test_the_fast_wait_for_the_slow():
    found = made()
    run = found.runs[0] | {"pace": [[1.0, 2.0]]}
    slow = Steps(**{**vars(found), "runs": [run]})
    first, second = predicted(slow, 2, 1e12)
    waits = [
        [e - s for part, s, e in lane["step"] if part == WAITING and e - s > 1]
        for lane in (first, second)
    ]
    # Forward, loss and backward take 34 ms, and on the second twice as long.
    assert waits[0] == [pytest.approx(34, abs=0.2)] * 2
    assert waits[1] == []


def test_the_link_is_as_fast_as_the_exchange_that_was_measured():
    assert link_bandwidth(made()) == pytest.approx(3000 / 3e-3)
    assert link_bandwidth(Steps(**{**vars(made()), "exchange_ms": None})) is None


@pytest.mark.parametrize("gpus", [1, 2, 4, 8])
@pytest.mark.parametrize("link", [None, 0.1, 100.0])
def test_every_choice_makes_an_animation(measured: Steps, gpus: int, link: float | None):
    figure = step_animation.figure(measured, gpus, link)
    json.dumps(figure, allow_nan=False)
    *bars, now = figure["data"]
    said = "Measured" if gpus == 1 or (gpus == 2 and link is None) else "Predicted"
    assert figure["note"].startswith(said)
    assert len(figure["layout"]["yaxis"]["categoryarray"]) == 2 * gpus
    # The first frame is empty, the last is the whole picture.
    first, last = figure["frames"][0], figure["frames"][-1]
    assert not any(length for part in first["data"][:-1] for length in part["x"])
    for bar, part in zip(bars, last["data"], strict=False):
        assert part["x"] == pytest.approx(bar["x"], abs=0.01)
    assert last["data"][-1]["x"] == pytest.approx(now["x"], abs=0.01)


def test_bars_only_grow_while_it_plays(measured: Steps):
    figure = step_animation.figure(measured, 2, None)
    for trace in range(len(figure["data"])):
        for before, after in pairwise(figure["frames"]):
            pairs = zip(before["data"][trace]["x"], after["data"][trace]["x"], strict=True)
            assert all(a <= b for a, b in pairs)


def test_the_table_has_all_fifteen_parts(measured: Steps):
    columns, rows = step_animation.table(measured)
    assert len(rows) == 16
    assert rows[0][0] == "1 read data"
    assert {len(row) for row in rows} == {len(columns)} == {3}


def test_gpus_have_clocks_of_their_own():
    """Two replicas whose clocks differ by an hour: the ends of their all-reduces meet."""

    def timeline(zero: float, late: float) -> dict[str, Any]:
        details = []
        for number in range(3):
            at = zero + number
            spans = [["output", at + late, at + 0.5], [WAITING, at + 0.5, at + 0.9]]
            details.append({"step": spans, "beside": [[EXCHANGE, at + 0.5, at + 0.9]]})
        parts = dict.fromkeys((*PARTS, WAITING), 1.0)
        return {"detail": details, "parts": parts, "step": 900.0}

    run = described(2, [timeline(5.0, 0.0), timeline(3605.0, 0.1)], on_gpus=True)
    ends = [lane["beside"][0][2] for lane in run["lanes"]]
    assert ends[0] == pytest.approx(ends[1], abs=1e-3)
    assert run["lanes"][0]["step"][0][1] == pytest.approx(0.0, abs=1e-3)
    assert run["lanes"][1]["step"][0][1] == pytest.approx(100.0, abs=1e-3)


def test_thirds_follow_the_layers():
    net = torch.nn.Sequential(*(torch.nn.Linear(2, 2, bias=False) for _ in range(6)))
    assert by_thirds(net) == [32, 32, 32]
