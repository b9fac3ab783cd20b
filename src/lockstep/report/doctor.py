"""Findings and what a run showed, as one page."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def write_doctor(path: Path, document: dict[str, Any], name: str) -> Path:
    """Write it."""
    return path
