"""lockstep assess: from the task to a certificate that is checked, and what cannot be."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from lockstep.assess.exam import EXAMS
from lockstep.labs.shared.progress import Progress
from replicas import lockstep

TINY = replace(
    EXAMS["digits"],
    epochs=2,
    target=0.2,
    train_samples=501,
    test_samples=99,
    batch=8,
    rate=0.02,
    seconds=300.0,
    speed_epochs=2,
    # What is tested is not how fast this machine is now.
    share=0.01,
)


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A home of its own: keys are made there."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setitem(EXAMS, "digits", TINY)


def test_from_the_task_to_a_certificate(tmp_path: Path, monkeypatch, capfd):
    folder, key = tmp_path / "ada", tmp_path / "teacher.pem"
    run = lambda *arguments: lockstep(monkeypatch, "assess", *arguments)  # noqa: E731
    assert run("start", str(folder), "--name", "Łukasz <b>", "--minutes", "30") == 0
    assert "You have 30 minutes" in capfd.readouterr().out
    assert run("key", str(key)) == 0

    (folder / "train.py").write_text("raise SystemExit('not yet')")
    assert run("grade", str(folder)) == 1
    shown = capfd.readouterr().out
    assert " FAILED  It starts and ends: it failed with exit code 1: not yet." in shown
    assert "0 of 10 checks passed; in time." in shown
    assert not (folder / "certificate.svg").exists()

    Progress().attempt(1, "batches", "secret", passed=True)
    (folder / "train.py").write_text(TINY.reference)
    assert run("grade", str(folder), "--key", str(key), "--json") == 0
    document = json.loads(capfd.readouterr().out)
    assert document["score"] == document["of"] == 10
    labs = json.loads((folder / "progress.json").read_text())["labs"]
    assert labs["1"]["tasks"] == {"convergence": False, "batches": True}
    assert document["certificate"] == [str(folder / f"certificate.{f}") for f in ("svg", "pdf")]

    for form in ("svg", "pdf"):
        file = str(folder / f"certificate.{form}")
        assert run("verify", file, "--public-key", f"{key}.pub") == 0
        said = capfd.readouterr().out
        assert "who    Łukasz <b>" in said
        assert "10 of 10 checks" in said
        # This machine has no key of its own, as an instructor's was given.
        assert run("verify", file) == 1
        assert "Give the instructor's key with --public-key" in capfd.readouterr().err
    edited = tmp_path / "edited.svg"
    edited.write_bytes((folder / "certificate.svg").read_bytes().replace(b"10 of 10", b"11 of 10"))
    assert run("verify", str(edited), "--public-key", f"{key}.pub") == 1
    assert "is refused: it was edited" in capfd.readouterr().err
    assert run("verify", str(edited), "--public-key", f"{key}.pub", "--json") == 1
    assert json.loads(capfd.readouterr().out)["valid"] is False

    assert run("summary", str(tmp_path), "--json") == 0
    (row,) = json.loads(capfd.readouterr().out)
    assert (row["name"], row["attempts"], row["best"]["score"]) == ("Łukasz <b>", 2, 10)
    assert row["certificate"]["by"] == "instructor"
    assert run("summary", str(tmp_path)) == 0
    assert "10/10" in capfd.readouterr().out


def test_without_a_key_it_is_self_graded(tmp_path: Path, monkeypatch, capfd):
    from assess.sheets import good

    monkeypatch.setattr("lockstep.assess.grade.grade", lambda *given: good())
    folder = tmp_path / "ada"
    assert lockstep(monkeypatch, "assess", "start", str(folder), "--data", "digits") == 0
    # Nobody is named: the checks are passed, and that is all.
    assert lockstep(monkeypatch, "assess", "grade", str(folder)) == 0
    assert "a certificate needs a name" in " ".join(capfd.readouterr().out.split())
    assert lockstep(monkeypatch, "assess", "grade", str(folder), "--name", "Ada") == 0
    capfd.readouterr()
    file = str(folder / "certificate.pdf")
    assert lockstep(monkeypatch, "assess", "verify", file) == 0
    assert "this machine's own key" in capfd.readouterr().out
    # To name the own key does not make an instructor of anybody.
    own = tmp_path / "home" / ".local" / "share" / "lockstep" / "assess-key.pem"
    given = ["assess", "grade", str(folder), "--name", "Ada", "--key", str(own)]
    assert lockstep(monkeypatch, *given) == 0
    assert b"SELF-GRADED" in (folder / "certificate.svg").read_bytes()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["start", "here", "--replicas", "1"], "give a number from 2 to 64"),
        (["start", "here", "--minutes", "0"], "give more than 0 minutes"),
        (["start", "here", "--data", "letters"], "give digits, cifar10, auto, or a folder"),
        (["start", "here", "--data", "cifar10"], "use --data digits"),
        (["start", "here", "--name", "x" * 81], "does not fit on a certificate"),
        (["start", "."], "is not empty"),
        (["grade", "nowhere"], "Begin with: lockstep assess start nowhere"),
        (["grade", "."], "holds no task.json"),
        (["verify", "nothing.svg"], "cannot be read"),
        (["verify", "plain.svg"], "plain.svg is not a lockstep certificate"),
        (["summary", "nowhere"], "is not a folder"),
        (["summary", "."], "holds no learner's folder"),
        (["key", "plain.svg"], "already exists"),
    ],
)
def test_impossible_arguments_are_refused(tmp_path: Path, monkeypatch, capfd, given, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "plain.svg").write_text("<svg/>")
    assert lockstep(monkeypatch, "assess", *given) == 2
    assert message in " ".join(capfd.readouterr().err.split())
    assert not (tmp_path / "here").exists()
