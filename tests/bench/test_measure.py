"""Sides take turns, and a side that fails is reported while the others go on."""

from __future__ import annotations

import os
import signal
import tempfile
from functools import partial
from pathlib import Path

import pytest

from lockstep.bench.assignment import Assignment
from lockstep.bench.entries import parse_entries
from lockstep.bench.measure import Settings, Taken, document, measure
from lockstep.bench.side_processes import Failure
from tiny import TINY, entry, steps_for_ever

QUICK = Settings(rounds=3, steps=2, warmup=0.0, speed="eager")


def test_the_order_turns_from_round_to_round():
    heard: list[str] = []
    entries = [entry("a", steps_for_ever), entry("b", steps_for_ever)]
    measure(TINY, entries, QUICK, heard.append)
    assert heard == ["a", "b", "a", "b", "b", "a", "a", "b"]


def test_lockstep_is_measured_on_one_and_on_two_replicas_beside_the_hand_written_loop():
    entries = parse_entries("lockstep@1,handwritten,lockstep,lockstep-exact", 2)
    measured = measure(TINY, entries, QUICK)
    assert measured["base"] == "lockstep"
    sides = measured["sides"]
    assert [sides[n]["replicas"] for n in sides] == [1, 2, 2, 2]
    for side in sides.values():
        assert side["error"] is None, side["trace"]
        assert len(side["samples_per_second"]) == QUICK.rounds
        assert side["parameters"] == sum(p.numel() for p in TINY.model().parameters())
        assert side["peak_memory_bytes"] > 0
    assert sides["lockstep"]["base_over_this"] == [1.0] * QUICK.rounds


def fails(after: int, how: str, assignment: Assignment) -> None:
    for _ in range(after):
        assignment.pace.step(assignment.work.batch)
    if how == "raise":
        raise RuntimeError("the library says no\nand more")
    if how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize("after", [0, 1, 20])
@pytest.mark.parametrize(
    ("how", "reason"),
    [
        ("raise", "RuntimeError: the library says no"),
        ("kill", "replica 0 was killed by signal 9, SIGKILL (out of memory is the usual reason)"),
        ("return", "ended by itself"),
    ],
)
def test_a_side_that_fails_is_reported_and_the_others_go_on(after: int, how: str, reason: str):
    entries = [entry("good", steps_for_ever), entry("bad", partial(fails, after, how))]
    sides = measure(TINY, entries, QUICK)["sides"]
    assert sides["bad"]["error"] == reason
    assert len(sides["bad"]["samples_per_second"]) < QUICK.rounds
    assert sides["good"]["error"] is None
    assert len(sides["good"]["samples_per_second"]) == QUICK.rounds


def test_if_one_replica_fails_its_side_fails():
    def second_fails(assignment: Assignment) -> None:
        if assignment.world.rank == 1:
            raise ImportError("no such thing")
        steps_for_ever(assignment)

    sides = measure(TINY, [entry("bad", second_fails, replicas=2)], QUICK)["sides"]
    assert sides["bad"]["error"] == "ImportError: no such thing"


def test_ctrl_c_leaves_no_process_behind():
    def interrupt(name: str) -> None:
        if name == "b":
            raise KeyboardInterrupt

    # That no child is left is checked after every test.
    with pytest.raises(KeyboardInterrupt):
        measure(TINY, [entry("a", steps_for_ever), entry("b", steps_for_ever)], QUICK, interrupt)


def test_no_file_is_left_behind(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert measure(TINY, parse_entries("lockstep", 1), QUICK)["sides"]["lockstep"]["error"] is None
    assert not list(tmp_path.iterdir())


def test_the_output_of_a_side_stays_out_of_the_way(capfd):
    def chatty(assignment: Assignment) -> None:
        os.write(1, b"hello")
        steps_for_ever(assignment)

    assert measure(TINY, [entry("a", chatty)], QUICK)["sides"]["a"]["error"] is None
    assert "hello" not in capfd.readouterr().out


def test_without_a_number_of_steps_a_round_takes_as_many_as_fill_it():
    settings = Settings(rounds=1, warmup=0.0, speed="eager")
    sides = measure(TINY, [entry("a", steps_for_ever)], settings)["sides"]
    assert sides["a"]["steps_per_round"] > 1000


def taken(name: str, rates: list[float], failure: Failure | None = None) -> Taken:
    return Taken(entry(name, steps_for_ever), "fp32", rates=rates, failure=failure)


def test_ratios_are_taken_within_a_round():
    sides = [taken("peer", [10.0, 20.0, 40.0]), taken("lockstep", [30.0, 40.0, 40.0])]
    measured = document(TINY, sides)
    assert measured["base"] == "lockstep"
    peer = measured["sides"]["peer"]
    assert peer["base_over_this"] == [3.0, 2.0, 1.0]
    assert peer["ratio"] == {"median": 2.0, "min": 1.0, "max": 3.0}
    assert peer["rate"] == {"median": 20.0, "min": 10.0, "max": 40.0}


def test_a_side_that_failed_midway_is_compared_in_the_rounds_it_finished():
    sides = [taken("lockstep", [30.0, 40.0]), taken("peer", [10.0], Failure("out of memory"))]
    peer = document(TINY, sides)["sides"]["peer"]
    assert peer["base_over_this"] == [3.0]
    assert peer["error"] == "out of memory"


def test_without_lockstep_the_first_side_is_the_base():
    assert document(TINY, [taken("a", [1.0]), taken("b", [2.0])])["base"] == "a"
