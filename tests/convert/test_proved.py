"""Converted scripts train as their originals do: run, and compared step by step."""

from __future__ import annotations

from pathlib import Path

import pytest

from lockstep.convert import convert
from lockstep.convert.verify import verify
from lockstep.source.reading import read_script

SCRIPTS = Path(__file__).parent.parent / "cases" / "convert" / "scripts"


def proof(name: str, folder: Path, replicas: tuple[int, ...], *, doctor: bool = False):
    path = SCRIPTS / name
    result = folder / "result.py"
    result.write_text(convert(read_script(path)).text)
    return verify(path, result, replicas=replicas, working=folder, doctor=doctor, steps=4)


@pytest.mark.parametrize(
    "name",
    [
        "vae.py",  # a summed loss, noise, and images that are saved
        "dcgan.py",  # two models and two optimizers, batch norm
        "word_lm.py",  # no DataLoader, a hidden state that is carried on
        "char_gpt.py",  # random windows
        "hand_sliced.py",  # batches that are cut by hand
        "phases.py",  # one loop for training and evaluation
        "trainer_class.py",  # early stopping
        "cifar/main.py",  # DataParallel, globals, another file that prints
        "super_resolution.py",  # a mean over batches that is no mean over samples
        "mixup.py",  # partners from the same batch
        "stream.py",  # samples without an index
        "distill.py",  # two trainings that count their epochs from 0
    ],
)
def test_two_processes_train_as_one(tmp_path: Path, name: str):
    verdict = proof(name, tmp_path, (1, 2))
    assert [c.text for c in verdict.comparisons if c.status != "equal"] == []
    assert not verdict.failure


@pytest.mark.slow
def test_four_processes_do_too_and_the_doctor_finds_nothing(tmp_path: Path):
    verdict = proof("accumulate.py", tmp_path, (4,), doctor=True)
    assert verdict.proved
    assert [f.message for f in verdict.findings if f.certain] == []
