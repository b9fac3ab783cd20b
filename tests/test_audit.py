"""Audits: a run repeats to the bit, and two runs diverge where they differ."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

import lockstep as package
from lockstep.audit import audit_run, compare_runs
from lockstep.console import Console
from lockstep.engine.run.receipts import _FORMAT, read
from lockstep.errors import FolderError, PlanError
from programs import PLAIN, run, written
from replicas import lockstep

SILENT = Console(quiet=True)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("audit")
    run(written(folder, PLAIN), folder / "run", 2, checkpoint_every=3)
    return folder / "run"


@pytest.mark.parametrize(
    ("steps", "start"), [(None, 0), ((4, 7), 3), ((6, 7), 6), ((9, 10), 9), ((0, 2), 0)]
)
def test_a_run_of_two_replicas_repeats_on_one(
    steps: tuple[int, int] | None, start: int, finished: Path
):
    found = audit_run(finished, steps, SILENT)
    assert found.equal
    assert found.compared == (10 if steps is None else steps[1] - steps[0])
    assert found.replayed_from == start


def test_a_step_that_was_computed_wrongly_is_found(finished: Path, tmp_path: Path):
    copy = tmp_path / "copy"
    shutil.copytree(finished, copy)
    content = bytearray((copy / "receipts.bin").read_bytes())
    content[7 * _FORMAT.size + 16] ^= 1
    (copy / "receipts.bin").write_bytes(content)
    assert audit_run(copy, (6, 10), SILENT).differs_at == 7
    found = compare_runs(finished, copy, SILENT)
    assert found.differs_at == 7
    assert found.reasons[0].startswith(f"{copy} cannot be repeated")


PARTED = {
    "the loss": (
        'reduction="sum"), len(y)',
        'reduction="sum") * (2 if loop.steps == 3 else 1), len(y)',
        3,
        "equal samples and weights give different gradients, first of",
    ),
    "the rate": (
        "            loop.step(batch",
        "            optimizer.param_groups[0]['lr'] = 0.1 if loop.steps == 4 else 1e-2\n"
        "            loop.step(batch",
        5,
        "the weights differ before the step, first a.weight",
    ),
    "the data": ("(DATA)", "([(X[0] + 1, Y[0]), *DATA[1:]])", None, "samples differ"),
    "the seed": ("global_batch=16", "global_batch=16, seed=1", 0, "the samples differ"),
}  # fmt: skip


@pytest.mark.parametrize("case", PARTED)
def test_two_runs_part_at_the_step_where_they_differ(case: str, finished: Path, tmp_path: Path):
    old, new, step, reason = PARTED[case]
    assert old in PLAIN
    run(written(tmp_path, PLAIN.replace(old, new)), tmp_path / "run", checkpoint_every=3)
    found = compare_runs(finished, tmp_path / "run", SILENT)
    assert found.differs_at is not None
    assert step is None or found.differs_at == step
    assert reason in " ".join(found.reasons)


def test_equal_runs_are_equal(finished: Path, tmp_path: Path):
    run(written(tmp_path, PLAIN), tmp_path / "run", 4)
    assert compare_runs(finished, tmp_path / "run", SILENT).equal


def test_the_command_tells_and_exits_with_its_verdict(
    finished: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
):
    assert lockstep(monkeypatch, "audit", str(finished), "--steps", "6:8") == 0
    assert (
        "Equal to the bit: 2 receipts of steps 6 to 7, replayed from step 6"
        in capfd.readouterr().out
    )
    assert lockstep(monkeypatch, "audit", str(finished), "--json") == 0
    assert json.loads(capfd.readouterr().out)["equal"] is True
    assert lockstep(monkeypatch, "audit", str(finished), "--steps", "8") == 2
    assert "write FIRST:END" in capfd.readouterr().err


def test_a_run_that_cannot_be_audited_is_refused(finished: Path, tmp_path: Path):
    with pytest.raises(PlanError, match="has receipts of steps 0 to 9"):
        audit_run(finished, (50, 60), SILENT)
    run(written(tmp_path, PLAIN), tmp_path / "fast", exact=False)
    with pytest.raises(FolderError, match="has no receipts"):
        audit_run(tmp_path / "fast", None, SILENT)
    with pytest.raises(FolderError, match="holds no run"):
        audit_run(tmp_path / "nothing", None, SILENT)


RECIPE = """
import functools, lockstep, torch
from torch.utils.data import TensorDataset, default_collate
X = torch.randn(96, 6, generator=torch.Generator().manual_seed(0))
data = lockstep.Data(train=TensorDataset(X, X.sum(1, keepdim=True)), test=TensorDataset(X, X))
recipe = lockstep.Recipe(
    name="sums",
    model=lambda: torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Dropout(0.2),
                                      torch.nn.ReLU(), torch.nn.Linear(8, 1)),
    data=lambda: data,
    loss=lambda outputs, targets: (outputs - targets[:, :1]).square().sum(1),
    metrics={"error": lambda outputs, targets: (outputs - targets[:, :1]).abs().sum(1)},
    optimizer=torch.optim.Adam,
    learning_rate=0.01,
    global_batch=16,
    epochs=2,
    # COLLATE
)
"""


@pytest.fixture(params=["recorded steps", "a Loop"], scope="module")
def recipe(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with a recipe, which its own steps or a Loop train."""
    path = tmp_path_factory.mktemp("recipe") / "sums.py"
    general = "collate=default_collate," if request.param == "a Loop" else ""
    path.write_text(RECIPE.replace("# COLLATE", general))
    return path


def train(recipe: Path, out: Path, replicas: int = 1, *flags: str) -> Path:
    with pytest.MonkeyPatch.context() as patch:
        given = ("--out", str(out), "--replicas", str(replicas), "--checkpoint-every", "4")
        assert lockstep(patch, "train", str(recipe), "--exact", *given, *flags) == 0
    return out


def test_a_run_of_a_recipe_repeats_on_one_replica(recipe: Path, tmp_path: Path):
    out = train(recipe, tmp_path / "run", 2, "--learning-rate", "0.02", "--seed", "3")
    assert [receipt.step for receipt in read(out / "receipts.bin")] == list(range(12))
    found = audit_run(out, (5, 9), SILENT)
    assert found.equal
    assert (found.compared, found.replayed_from) == (4, 4)
    other = train(recipe, tmp_path / "other", 4, "--learning-rate", "0.02", "--seed", "3")
    assert compare_runs(out, other, SILENT).equal
    content = bytearray((out / "receipts.bin").read_bytes())
    content[7 * _FORMAT.size + 16] ^= 1
    (out / "receipts.bin").write_bytes(content)
    assert audit_run(out, None, SILENT).differs_at == 7
    assert compare_runs(out, other, SILENT).reasons[0].startswith(f"{out} cannot be repeated")


@pytest.mark.parametrize(
    ("flags", "step", "reason"),
    [
        (("--learning-rate", "0.02"), 1, "its settings differ: lr"),
        (("--seed", "1"), 0, "the samples differ"),
    ],
)
def test_two_runs_of_a_recipe_part_where_they_differ(
    flags: tuple[str, ...], step: int, reason: str, recipe: Path, tmp_path: Path
):
    runs = [train(recipe, tmp_path / "one"), train(recipe, tmp_path / "other", 2, *flags)]
    found = compare_runs(runs[0], runs[1], SILENT)
    assert found.differs_at == step
    assert reason in " ".join(found.reasons)


def test_a_resumed_recipe_has_the_receipts_of_an_uninterrupted_one(recipe: Path, tmp_path: Path):
    whole = train(recipe, tmp_path / "whole")
    parts = train(recipe, tmp_path / "parts", 2, "--max-steps", "7")
    train(recipe, parts, 1, "--resume")
    assert [r[:3] for r in read(whole / "receipts.bin")] == [
        r[:3] for r in read(parts / "receipts.bin")
    ]


def test_a_recipe_that_was_an_object_must_be_named(recipe: Path, tmp_path: Path):
    from lockstep.engine.recipe.resolve import find_recipe

    found = replace(find_recipe(str(recipe)), epochs=1)
    out = package.train(found, exact=True, out=tmp_path / "run", quiet=True).folder
    with pytest.raises(FolderError, match=r"--recipe file\.py"):
        audit_run(out, None, SILENT)
    assert audit_run(out, None, SILENT, str(recipe)).equal
    with pytest.raises(FolderError, match="another recipe: model was"):
        audit_run(out, None, SILENT, "digits")
