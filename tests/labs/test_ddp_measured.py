"""Lab 2's measurements, figures and questions."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, replace
from functools import cache

import pytest

from lockstep.labs.lab2_ddp import (
    bucket_pictures,
    buckets,
    converter_comparison,
    proof,
    validation,
)
from lockstep.labs.lab2_ddp.buckets import DEFAULT, Recorded
from lockstep.labs.lab2_ddp.converter_comparison import CONVERTED, ONE, OWN, Run, Runs
from lockstep.labs.lab2_ddp.diff import diff
from lockstep.labs.lab2_ddp.quiz import questions
from lockstep.labs.lab2_ddp.steps import steps
from lockstep.labs.shared.apart import apart


def quiet(share: float, what: str) -> None:
    """Nobody asks how far it is."""


@cache
def recorded() -> Recorded:
    """As a later visit has it: from JSON."""
    found = buckets.measure(quiet, caps=(1.0, 25.0, DEFAULT), steps=3)
    return Recorded(**json.loads(json.dumps(asdict(found))))


def runs(one: float = 4000.0, two: float | None = 6000.0, convert: float = 5900.0) -> Runs:
    rates = {ONE: one, OWN: two, CONVERTED: convert}
    found = [
        Run(program=name, processes=1 + (name != ONE), batch=batch, rate=rate, accuracy=0.97)
        for name, rate in rates.items()
        for batch in converter_comparison.BATCHES
    ]
    return Runs(device="CPU", cores=2, runs=[asdict(one) for one in found])


def test_a_recording_has_every_gradient_in_one_bucket_of_every_step():
    names = [name for name, _ in recorded().parameters]
    for cap in recorded().caps:
        for step in range(3):
            for notes in recorded().notes(cap, step):
                inside = [name for one in notes["buckets"] for name in one["parameters"]]
                assert sorted(inside) == sorted(names)
                assert sum(one["bytes"] for one in notes["buckets"]) == recorded().bytes
    assert len(recorded().notes(1.0, 0)[0]["buckets"]) == 1
    assert len(recorded().notes(1.0, 2)[0]["buckets"]) == 9
    assert len(recorded().notes(25.0, 2)[0]["buckets"]) == 1
    assert len(recorded().notes(DEFAULT, 2)[0]["buckets"]) == 2


def test_gradients_become_their_mean_and_weights_stay_equal():
    for columns, rows in (
        (bucket_pictures.GRADIENTS, bucket_pictures.gradients(recorded())),
        (bucket_pictures.WEIGHTS, bucket_pictures.weights(recorded())),
    ):
        assert len(rows) == bucket_pictures.ROWS
        assert all(len(row) == len(columns) for row in rows)
    assert all(own == other for _, own, other in bucket_pictures.weights(recorded()))
    assert all(mean == reduced for *_, mean, reduced in bucket_pictures.gradients(recorded()))
    assert "equal to the bit" in bucket_pictures.verdict(recorded())
    other = json.loads(json.dumps(recorded().exchange))
    other["weights"][1][0] += 1e-7
    assert "different" in bucket_pictures.verdict(replace(recorded(), exchange=other))


@pytest.mark.parametrize("cap", [1.0, 25.0])
def test_a_timeline_shows_every_bar_and_its_frames_end_where_it_ends(cap):
    figure = bucket_pictures.timeline(recorded(), cap, 2)
    json.dumps(figure)
    notes = recorded().notes(cap, 2)
    bars = sum(len(trace["x"]) for trace in figure["data"])
    assert bars == sum(len(one["layers"]) + len(one["buckets"]) for one in notes)
    assert [part["x"] for part in figure["frames"][-1]["data"]] == [
        pytest.approx(trace["x"], abs=0.002) for trace in figure["data"]
    ]
    first = figure["frames"][0]["data"]
    assert sum(sum(part["x"]) for part in first) < sum(sum(t["x"]) for t in figure["data"])
    assert figure["note"].count("Rank") == 2


def test_the_order_is_a_staircase_once_buckets_follow_the_gradients():
    later = bucket_pictures.order(recorded(), 1.0, 2)["data"][0]
    assert later["y"] == sorted(later["y"])
    assert len(set(later["y"])) == 9
    assert set(bucket_pictures.order(recorded(), 1.0, 0)["data"][0]["y"]) == {0}
    assert len(bucket_pictures.by_cap(recorded())["data"][0]["x"]) == 3


def test_an_exchange_after_the_last_gradient_is_all_waiting():
    notes = {"start": 0.0, "end": 12.0, "ready": [{"at": 5.0}, {"at": 10.0}]}
    late = notes | {"buckets": [{"start": 10.0, "end": 12.0}]}
    assert bucket_pictures.overlap(late) == (0.0, 2.0, 2.0)
    early = notes | {"buckets": [{"start": 5.0, "end": 8.0}]}
    assert bucket_pictures.overlap(early) == (1.0, 3.0, 2.0)


def test_ways_to_put_parts_together():
    known = [1] * 9 + [0]
    found = validation.ways(known, ranks=3, batch=2)
    assert found[validation.EXACT] == 0.9
    # Parts of 4, 3 and 3; the wrong one is the last of the first part.
    assert found[validation.RANKS_MEAN] == pytest.approx((0.75 + 1 + 1) / 3)
    assert found[validation.BATCHES_MEAN] == pytest.approx(((1 + 0.5) / 2 + 1 + 1) / 3)
    assert found[validation.PADDED] == pytest.approx(11 / 12)
    assert found[validation.DROPPED] == pytest.approx(7 / 8)


def test_a_network_is_judged_image_by_image():
    found = validation.measure(quiet)
    assert len(found.right) == 359
    assert 0.5 < sum(found.right) / 359 < 1
    assert found == validation.measure(quiet)
    for ranks in (2, 8):
        figure = validation.figure(found, ranks, 100)
        assert figure["data"][0]["x"][0] == 0.0
        json.dumps(figure, allow_nan=False)


def test_questions_have_one_right_choice_and_cite_what_was_measured():
    judged = validation.Judged(right=([1] * 9 + [0]) * 35 + [1] * 9)
    asked = questions(recorded(), judged, runs())
    assert len(asked) == 5
    sent, first, beside, mean, besides = asked
    assert sent.answer.startswith(f"{recorded().bytes / 1e6:.1f} MB")
    assert first.answer == "head, hidden8"
    assert set(beside.choices) <= {"1 MiB", "25 MiB", "default"} | {"all of it did, with any"}
    listed = beside.why.removeprefix("Measured here: ").partition(".")[0].split(", ")
    told = {name: int(share.rstrip("%")) for name, share in (one.split(": ") for one in listed)}
    assert told[beside.answer] == max(told.values())
    assert float(mean.answer) == pytest.approx(
        validation.ways(judged.right, 2, 100)[validation.RANKS_MEAN], abs=1e-5
    )
    # 8 ms on one process; 5.33 on two, of which 4 are half of the work.
    assert besides.answer == "1.33 ms"


@pytest.mark.parametrize(
    ("two", "convert", "answer"),
    [(9000.0, 9000.0, "none"), (None, 3000.0, "6.67 ms"), (2000.0, 2000.0, "12.00 ms")],
)
def test_the_last_question_follows_the_numbers(two, convert, answer):
    judged = validation.Judged(right=[1] * 359)
    asked = questions(recorded(), judged, runs(two=two, convert=convert))
    assert asked[-1].answer.startswith(answer)
    assert asked[3].answer == "1.00000"
    assert all(len(question.choices) >= 2 for question in asked)


def test_the_converters_program_is_shown_against_the_learners():
    own = steps()[-1].after
    shown = diff(own, converter_comparison.converted())
    assert "-    torch.manual_seed(1 + rank)" in shown
    assert "+    model = nn.Sequential(" not in shown
    assert any(line[0] == "+" and "divided(" in line for line in shown.splitlines())
    assert "dist.init_process_group()" in converter_comparison.helpers()
    assert diff(converter_comparison.converted(), converter_comparison.converted()) == ""


def test_programs_are_run_and_what_they_print_is_read():
    found = apart(
        "lockstep.labs.lab2_ddp.converter_comparison:measure",
        limit=100,
        own="raise SystemExit('no data')",
        epochs=1,
        batches=[128],
    )
    compared = Runs(**found)
    alone, own, convert = (compared.of(name, 128) for name in (ONE, OWN, CONVERTED))
    assert (alone.processes, convert.processes) == (1, 2)
    for one in (alone, convert):
        assert one.rate
        assert one.accuracy
        assert one.accuracy > 0.2
        assert not one.failed
        assert one.speakers == 1
    assert compared.ratio(CONVERTED, 128)
    # Both do: whose end is seen first is chance.
    assert re.fullmatch(r"Replica [01] failed with SystemExit: no data", own.failed)
    assert compared.ratio(OWN, 128) is None


def test_the_last_program_computes_what_the_first_one_does():
    found = proof.measure(quiet, steps()[-1].after)
    assert found.proved, found
    assert found.said.startswith("2 ranks: equal in 6 steps")


def test_the_remarks_follow_the_runs():
    found = runs()
    assert converter_comparison.rows(found)[0] == ["one GPU on 1", "32", "4,000", "1.00", "0.9700"]
    assert ["yours on 2", "32", "6,000", "1.50", "0.9700"] in converter_comparison.rows(found)
    assert any("share 2 cores" in one for one in converter_comparison.remarks(found))
    assert any(
        "within 0.0000, 0 of 359 images" in one for one in converter_comparison.remarks(found)
    )
    broken = [
        one | {"failed": "It took longer than 60 seconds", "rate": None} for one in found.runs
    ]
    said = converter_comparison.remarks(replace(found, runs=broken, device="GPU"))
    assert "yours, batch 32: It took longer than 60 seconds" in said
    assert not any("cores" in one for one in said)
