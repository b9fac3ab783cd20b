"""lockstep tune: one document, advice that can be followed, and a verdict that is the exit code."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from replicas import lockstep

TINY = [
    "--model",
    "mlp((64, 16, 10))",
    "--augment",
    "none",
    "--global-batch",
    "32",
    "--epochs",
    "2",
]
TINY += ["--learning-rate", "0.02", "--device", "cpu", "--speed", "eager", "--steps", "40"]


def test_the_document_holds_measurements_and_advice_that_can_be_followed(
    tmp_path: Path, monkeypatch, capfd
):
    out = tmp_path / "out"
    arguments = ["tune", "digits", *TINY, "--replicas", "1,2,16", "--json", "--out", str(out)]
    assert lockstep(monkeypatch, *arguments) == 0
    document = json.loads(capfd.readouterr().out)
    assert document["noise"]["source"] == "shards"
    assert document["micro_batch"]["largest"] >= 32
    assert [a["replicas"] for a in document["advice"]] == [1, 2, 16]
    assert [a["measured"] for a in document["advice"]] == [True, True, False]
    assert json.loads((out / "tune.json").read_text())["advice"] == document["advice"]
    page = (out / "report.html").read_text()
    assert "critical batch" in page
    assert document["advice"][0]["why"] in page
    typed = shlex.split(document["advice"][1]["command"])[1:]
    assert typed[:6] == ["train", "digits", *TINY[:4]]
    more = ["--max-steps", "2", "--out", str(tmp_path / "run")]
    assert lockstep(monkeypatch, *typed, *more) == 0


def test_people_read_a_table_reasons_and_commands(tmp_path: Path, monkeypatch, capfd):
    arguments = ["tune", "digits", *TINY, "--replicas", "1,2", "--out", str(tmp_path / "out")]
    assert lockstep(monkeypatch, *arguments) == 0
    shown = capfd.readouterr().out
    assert "critical batch" in shown
    assert "speed-up" in shown
    assert "doubling would save" in shown
    assert "--replicas 2 --global-batch" in shown


@pytest.mark.slow
@pytest.mark.parametrize(("margin", "code"), [("1", 0), ("0", 1)])
def test_a_verified_advice_is_the_exit_code(tmp_path: Path, monkeypatch, capfd, margin, code):
    flags = ["--replicas", "1,2", "--verify", "--seeds", "2", "--margin", margin, "--json"]
    # A target in numbers of samples that nobody reaches: it must not matter.
    flags += ["--target", "2.0", "--out", str(tmp_path / "out")]
    assert lockstep(monkeypatch, "tune", "digits", *TINY, *flags) == code
    found = json.loads(capfd.readouterr().out)["verified"]
    assert found["replicas"] == 2
    assert found["seeds"] == [0, 1]
    assert found["retained"] == (code == 0)
    assert len(found["one"]) == len(found["many"]) == 2
    assert "Verified" in (tmp_path / "out" / "report.html").read_text()


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--replicas", "3"], "3 is no power of two"),
        (["--steps", "5"], "give 10 or more"),
        (["--micro-batch", "8"], "tune chooses this itself"),
        (["--max-steps", "8"], "tune chooses this itself"),
        (["--link", "0"], "give gigabytes per second"),
        (["--seeds", "0"], "give 1 or more"),
        (["--margin", "-1"], "give 0 or more"),
    ],
)
def test_flags_that_cannot_be_tuned_are_refused(tmp_path: Path, monkeypatch, capfd, flags, message):
    given = ["tune", "digits", *TINY[:-2], *flags, "--out", str(tmp_path / "out")]
    assert lockstep(monkeypatch, *given) == 2
    assert message in capfd.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_folder_that_is_in_use_is_refused(tmp_path: Path, monkeypatch, capfd):
    (tmp_path / "kept").write_text("")
    assert lockstep(monkeypatch, "tune", "digits", *TINY, "--out", str(tmp_path)) == 2
    assert "is not empty" in capfd.readouterr().err


@pytest.mark.slow
def test_a_link_that_is_given_is_not_measured(tmp_path: Path, monkeypatch, capfd):
    flags = ["--replicas", "1,8", "--link", "50", "--json", "--out", str(tmp_path / "out")]
    assert lockstep(monkeypatch, "tune", "digits", *TINY, *flags) == 0
    document = json.loads(capfd.readouterr().out)
    assert document["exchange"]["how"] == "computed for a link of 50 GB/s, as given"
    # A ring of eight: seven eighths of the bytes, twice.
    expected = 2 * 7 / 8 * 4 * document["parameters"] / 50e9
    assert document["exchange"]["seconds"]["8"] == pytest.approx(expected)
