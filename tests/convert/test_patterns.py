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


LONG = {
    "batch_size_in_loop",
    "by_name",
    "gradient_penalty",
    "loader_styles",
    "makes_its_text",
    "set_order",
}
"""Programs whose proof takes four seconds and more: `make test-all` proves them."""


def name_of(path: Path) -> str:
    return path.stem if path.parent == PATTERNS else path.parent.name


@pytest.mark.parametrize(
    "path",
    [p if name_of(p) not in LONG else pytest.param(p, marks=pytest.mark.slow) for p in CASES],
    ids=[name_of(path) for path in CASES],
)
def test_two_processes_train_as_one(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert faults(proven(path).verdict) == []
