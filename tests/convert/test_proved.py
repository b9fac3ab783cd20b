"""Converted scripts train as their originals do: run, and compared step by step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from converting import faults, proven
from lockstep.convert import Options

SCRIPTS = Path(__file__).parent.parent / "cases" / "convert" / "scripts"


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def _long(name: str) -> Any:
    """Leave a script to `make test-all`: its proof takes ten seconds and more."""
    return pytest.param(name, marks=pytest.mark.slow)


@pytest.mark.parametrize(
    "name",
    [
        _long("vae.py"),  # a summed loss, noise, and images that are saved
        _long("dcgan.py"),  # two models and two optimizers, batch norm
        "word_lm.py",  # no DataLoader, a hidden state that is carried on
        _long("char_gpt.py"),  # random windows
        "hand_sliced.py",  # batches that are cut by hand
        _long("phases.py"),  # one loop for training and evaluation
        _long("trainer_class.py"),  # early stopping
        _long("cifar/main.py"),  # DataParallel, globals, another file that prints
        "super_resolution.py",  # a mean over batches that is no mean over samples
        "mixup.py",  # partners from the same batch
        "stream.py",  # samples without an index
        _long("distill.py"),  # two trainings that count their epochs from 0
    ],
)
def test_two_processes_train_as_one(name: str) -> None:
    assert faults(proven(SCRIPTS / name).verdict) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", ["accumulate.py", "meters/main.py", "notebook.ipynb"])
def test_four_processes_do_too(name: str) -> None:
    assert faults(proven(SCRIPTS / name, (1, 2, 4), steps=6).verdict) == []


def test_an_option_of_the_user_changes_what_is_written_and_not_what_is_proven() -> None:
    found = proven(SCRIPTS / "regression.py", options=Options(scale_batch=True))
    assert faults(found.verdict) == []
    assert "WORLD_SIZE" in found.conversion.text


def test_a_script_that_fails_is_not_proven_and_its_error_is_shown(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text("import sys\nsys.exit('it needs --data')\n")
    path.write_text(path.read_text() + (SCRIPTS / "regression.py").read_text())
    verdict = proven(path).verdict
    assert not verdict.proved
    assert "it needs --data" in verdict.log
