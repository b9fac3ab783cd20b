"""Programs as people write them are proven: each of these patterns once came out wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from converting import faults, proven

PATTERNS = Path(__file__).parent.parent / "cases" / "convert" / "patterns"
CASES = sorted(
    path
    for path in [*PATTERNS.glob("*.py"), *PATTERNS.glob("*/main.py"), *PATTERNS.glob("*/train.py")]
)


@pytest.mark.parametrize(
    "path", CASES, ids=lambda p: p.stem if p.parent == PATTERNS else p.parent.name
)
def test_two_processes_train_as_one(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert faults(proven(path).verdict) == []
