"""lockstep compare as a user types it: the table, the document, the verdict as exit code."""

from __future__ import annotations

import json
import re

import pytest

from replicas import lockstep

TINY = ["--model", "wideresnet(10, 1, channels=1)", "--device", "cpu", "--epochs", "2"]


def test_the_table_says_identical_to_the_bit(tmp_path, monkeypatch, capfd):
    out = tmp_path / "out"
    arguments = ["compare", "digits", *TINY, "--replicas", "2", "--margin", "1", "--out", str(out)]
    assert lockstep(monkeypatch, *arguments) == 0
    shown = capfd.readouterr().out
    for row in ("time, 1 replica", "time, 2 replicas", "speed-up", "efficiency", "largest diff"):
        assert row in shown
    assert re.search(r"identical to the bit\s+│\s+no\s+│\s+yes", shown)
    assert str(out / "report.html") in shown
    assert (out / "report.html").exists()
    assert json.loads((out / "compare.json").read_text())["verdict"]["ok"] is True


def test_several_seeds_make_a_paired_test(tmp_path, monkeypatch, capfd):
    arguments = ["compare", "digits", *TINY, "--fast", "--seeds", "3", "--margin", "1", "--json"]
    assert lockstep(monkeypatch, *arguments, "--out", str(tmp_path / "out")) == 0
    document = json.loads(capfd.readouterr().out)
    assert document["seeds"] == [0, 1, 2]
    assert len(document["accuracy"]["differences"]) == 3
    assert "exact" not in document["modes"]
    assert document["modes"]["fast"]["speed_up"] > 0


def test_a_wire_that_rounds_is_compared_in_fast_mode(tmp_path, monkeypatch, capfd):
    arguments = ["compare", "digits", *TINY, "--wire", "bf16", "--max-steps", "2", "--json"]
    assert lockstep(monkeypatch, *arguments, "--margin", "1", "--out", str(tmp_path / "out")) == 0
    document = json.loads(capfd.readouterr().out)
    assert list(document["modes"]) == ["fast"]
    assert document["modes"]["fast"]["many"][0]["exchange"]["wire"] == "bf16"


def test_accuracy_that_is_not_retained_is_exit_code_1(tmp_path, monkeypatch, capfd):
    def worse(one, many, **options):
        return {"retained": False, "sentence": "lost"}

    monkeypatch.setattr("lockstep.engine.run.comparison.retained", worse)
    arguments = ["compare", "digits", *TINY, "--fast", "--max-steps", "2"]
    monkeypatch.setattr("lockstep.report.comparison.write_comparison_report", lambda d, p: p)
    assert lockstep(monkeypatch, *arguments, "--out", str(tmp_path / "out")) == 1
    assert "FAILED: accuracy NOT retained" in capfd.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--replicas", "1"], "give 2 or more"),
        (["--replicas", "3"], "Nearest that do: 2, 4"),
        (["--seeds", "0"], "1 or more"),
        (["--margin", "-1"], "0 or more"),
        (["--exact", "--batch-norm", "sync"], "--batch-norm shard"),
        (["--exact", "--wire", "bf16"], "does not work with --exact"),
    ],
)
def test_misuse_ends_in_code_2_before_anything_runs(
    tmp_path, monkeypatch, capfd, arguments: list[str], message: str
):
    out = tmp_path / "out"
    assert lockstep(monkeypatch, "compare", "digits", *arguments, "--out", str(out)) == 2
    assert message in re.sub(r"\s+", " ", capfd.readouterr().err)
    assert not out.exists()


def test_a_folder_in_use_is_left_alone(tmp_path, monkeypatch, capfd):
    (tmp_path / "notes.txt").write_text("")
    assert lockstep(monkeypatch, "compare", "digits", "--out", str(tmp_path)) == 2
    assert "is not empty" in capfd.readouterr().err
