"""lockstep bench as a user types it: the table, the document, misuse."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time

import pytest
from torch import nn

from lockstep.bench import works
from lockstep.bench.assignment import Assignment
from lockstep.bench.entries import SIDES
from lockstep.bench.side import Side
from replicas import lockstep as command
from tiny import TINY, steps_for_ever

QUICK = ["--device", "cpu", "--rounds", "2", "--steps", "2", "--warmup", "0", "--speed", "eager"]


@pytest.fixture(autouse=True)
def _tiny_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(works.WORKS, "tiny", TINY)


def lockstep(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    return command(monkeypatch, "bench", *arguments)


def test_the_document_holds_machine_command_rates_and_ratios(tmp_path, monkeypatch, capfd):
    saved = tmp_path / "bench.json"
    arguments = ["tiny", *QUICK, "--sides", "lockstep,workshop", "--json", "--save", str(saved)]
    assert lockstep(monkeypatch, *arguments) == 0
    shown = json.loads(capfd.readouterr().out)
    assert shown == json.loads(saved.read_text())
    assert shown["machine"]["cores"] >= 1
    assert shown["machine"]["torch"]
    assert shown["device"] == "cpu"
    # Where the result went is no part of how to repeat it.
    assert shown["command"] == f"lockstep bench tiny {' '.join(QUICK)} --sides lockstep,workshop"
    work = shown["works"][0]
    assert (work["work"], work["batch"], work["base"]) == ("tiny", 8, "lockstep")
    side = work["sides"]["workshop"]
    assert side["replicas"] == 1
    assert side["precision"] == "fp32"
    assert len(side["samples_per_second"]) == len(side["base_over_this"]) == 2
    assert side["ratio"]["min"] <= side["ratio"]["median"] <= side["ratio"]["max"]


def test_the_table_has_a_row_for_each_side(monkeypatch, capfd):
    assert lockstep(monkeypatch, "tiny", *QUICK, "--sides", "lockstep,workshop") == 0
    shown = capfd.readouterr().out
    assert "MLP 16-8-4, batch 8" in shown
    assert re.search(r"workshop\s+│\s+1 x fp32\s+│\s+[\d,]+", shown)
    assert "lockstep is" in shown


def test_markdown_names_the_machine_and_the_command(monkeypatch, capfd):
    arguments = ["tiny", *QUICK, "--sides", "lockstep,workshop", "--markdown"]
    assert lockstep(monkeypatch, *arguments) == 0
    shown = capfd.readouterr().out
    assert "cores, torch" in shown
    assert "`lockstep bench tiny" in shown
    assert "| MLP 16-8-4, batch 8 | lockstep | 1 x fp32, eager |" in shown
    assert re.search(r"\|  \| workshop \| 1 x fp32 \| [\d,]+ \| [\d,]+ \| [\d.]+x \(", shown)


def test_a_place_that_cannot_be_written_is_refused_before_anything_is_measured(
    monkeypatch, capfd, tmp_path
):
    assert lockstep(monkeypatch, "tiny", *QUICK, "--save", str(tmp_path)) == 2
    assert "cannot be written" in capfd.readouterr().err


def test_a_side_that_fails_is_in_the_table_and_in_the_exit_code(monkeypatch, capfd):
    def fails(assignment: Assignment) -> None:
        raise RuntimeError("no luck")

    bad = Side(name="workshop", sentence="", run=fails)
    monkeypatch.setitem(SIDES, "workshop", bad)
    assert lockstep(monkeypatch, "tiny", *QUICK, "--sides", "lockstep,workshop") == 1
    assert "failed" in (shown := capfd.readouterr().out)
    assert "no luck" in shown


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_all_sides_and_is_reported(monkeypatch, capfd, number: int):
    bench = os.getpid()

    def signals(assignment: Assignment) -> None:
        os.kill(bench, number)
        steps_for_ever(assignment)

    noisy = Side(name="workshop", sentence="", run=signals)
    monkeypatch.setitem(SIDES, "workshop", noisy)
    # That no child is left is checked after every test.
    assert lockstep(monkeypatch, "tiny", *QUICK, "--sides", "lockstep,workshop") == 1
    assert "Stopped before a round was complete" in capfd.readouterr().err


def test_a_signal_in_the_midst_of_a_fork_is_not_lost(monkeypatch, capfd):
    sent: list[int] = []

    def interrupt() -> None:
        if not sent:  # a hook stays for good
            sent.append(0)
            os.kill(os.getpid(), signal.SIGINT)

    os.register_at_fork(after_in_parent=interrupt)
    assert lockstep(monkeypatch, "tiny", *QUICK, "--sides", "lockstep,workshop") == 1
    assert "Stopped before a round was complete" in capfd.readouterr().err


def test_a_bench_that_is_stopped_keeps_its_rounds(monkeypatch, capfd, tmp_path):
    bench, turns = os.getpid(), []

    def signals(assignment: Assignment) -> None:
        assignment.pace.begin(nn.Linear(1, 1))
        while True:
            # Two rounds of three steps each follow the set-up.
            turns.append(0)
            if len(turns) == 25:
                os.kill(bench, signal.SIGINT)
                time.sleep(60)  # ended with the bench
            assignment.pace.step(1)

    monkeypatch.setitem(SIDES, "workshop", Side(name="w", sentence="", run=signals))
    flags = [*QUICK, "--sides", "lockstep,workshop", "--rounds", "9", "--save"]
    assert lockstep(monkeypatch, "tiny", *flags, str(tmp_path / "a.json")) == 1
    assert "The finished rounds are above" in capfd.readouterr().err
    document = json.loads((tmp_path / "a.json").read_text())
    assert document["stopped"]
    assert 0 < len(document["works"][0]["sides"]["workshop"]["samples_per_second"]) < 9


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nothing"], "there is no work 'nothing'. Known: mlp, wrn-16-2"),
        (["tiny", "--sides", "nobody"], "there is no side 'nobody'. Known: lockstep"),
        (["tiny", "--device", "tpu"], "known are auto, cpu, cuda"),
        (["tiny", "--precision", "int4"], "known are fp32, tf32, bf16"),
        (["tiny", "--speed", "warp"], "known are auto, eager, compile, graph"),
        (["tiny", "--rounds", "0"], "give 1 or more"),
        (["tiny", "--steps", "-1"], "give 0 or more"),
        (["tiny", "--warmup", "-1"], "0 or more"),
        (["tiny", "--replicas", "0"], "give 1 or more"),
        (["tiny", "--replicas", "3", "--device", "cpu"], "Use 2 or 4"),
        (["tiny", "--save", "no/such/place.json"], "its folder does not exist"),
    ],
)
def test_misuse_ends_in_code_2_before_anything_runs(
    monkeypatch, capfd, arguments: list[str], message: str
):
    assert lockstep(monkeypatch, *arguments) == 2
    assert message in re.sub(r"\s+", " ", capfd.readouterr().err)


def test_missing_libraries_are_named(monkeypatch, capfd):
    monkeypatch.setattr("lockstep.bench.side.find_spec", lambda name: None)
    assert lockstep(monkeypatch, "tiny", *QUICK) == 0
    assert "Not installed, so left out: accelerate, fabric, trainer" in capfd.readouterr().out


def test_the_bench_needs_no_report():
    code = "import sys, lockstep.bench.measure; sys.exit('lockstep.report' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
