"""Audits: a run repeats to the bit, and two runs part where they differ."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lockstep.audit import audit_run, compare_runs
from lockstep.console import Console
from lockstep.engine.program.receipts import _FORMAT
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
    import shutil

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


def test_what_cannot_be_audited_is_refused(finished: Path, tmp_path: Path):
    with pytest.raises(PlanError, match="has receipts of steps 0 to 9"):
        audit_run(finished, (50, 60), SILENT)
    run(written(tmp_path, PLAIN), tmp_path / "fast", exact=False)
    with pytest.raises(FolderError, match="has no receipts"):
        audit_run(tmp_path / "fast", None, SILENT)
    with pytest.raises(FolderError, match="holds no run"):
        audit_run(tmp_path / "nothing", None, SILENT)
