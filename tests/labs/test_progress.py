"""What the learner has done is kept, and a damaged file costs nobody more than itself."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from lockstep.labs.shared.progress import Progress


@dataclass(frozen=True)
class Speed:
    sizes: list[int]


def test_a_passed_task_stays_passed(tmp_path: Path) -> None:
    Progress(tmp_path).attempt(1, "batches", "good", passed=True)
    Progress(tmp_path).attempt(1, "batches", "worse", passed=False)
    assert Progress(tmp_path).passed(1) == ["batches"]
    task = Progress(tmp_path).of(1)["tasks"]["batches"]
    assert (task["text"], task["tries"]) == ("good", 2)
    assert Progress(tmp_path).passed(2) == []


def test_an_outline_has_every_task_and_no_text(tmp_path: Path) -> None:
    Progress(tmp_path).attempt(1, "batches", "secret", passed=True)
    Progress(tmp_path).attempt(1, "convergence", "secret", passed=False)
    outline = Progress(tmp_path).outline()
    assert outline["labs"]["1"]["tasks"] == {"convergence": False, "batches": True}
    assert list(outline["labs"]) == ["0", "1", "2", "3"]
    assert "secret" not in str(outline)


def test_the_best_quiz_counts(tmp_path: Path) -> None:
    for right in (3, 5, 2):
        Progress(tmp_path).quiz(0, right, 5)
    assert Progress(tmp_path).of(0)["quiz"]["right"] == 5


@pytest.mark.parametrize("content", ["", "{", "[]", '{"labs": 3}', "\udcff"])
def test_a_damaged_file_counts_as_none_and_is_kept(tmp_path: Path, content: str) -> None:
    path = tmp_path / "progress.json"
    path.write_bytes(content.encode(errors="surrogateescape"))
    assert Progress(tmp_path).passed(1) == []
    Progress(tmp_path).attempt(1, "batches", "text", passed=True)
    assert Progress(tmp_path).passed(1) == ["batches"]
    kept = tmp_path / "progress.damaged.json"
    assert kept.read_bytes() == content.encode(errors="surrogateescape")


def test_measurements_are_kept_unless_their_shape_has_changed(tmp_path: Path) -> None:
    progress = Progress(tmp_path)
    assert progress.kept(1, "speed", Speed) is None
    progress.keep(1, "speed", Speed([8, 16]))
    assert progress.kept(1, "speed", Speed) == Speed([8, 16])
    (tmp_path / "lab1-speed.json").write_text('{"other": 1}')
    assert progress.kept(1, "speed", Speed) is None
