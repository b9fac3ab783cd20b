"""The common parts of the measuring scripts: training a recipe, alternating sides, spreads, saving.

Imports of torch and lockstep are inside the functions, so that a script which measures the start of
its own processes stays light.
"""

from __future__ import annotations

import json
import math
import statistics
import sys
import tempfile
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any


def trained(
    recipe: Any, device: str = "cpu", **options: Any
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Train a recipe in a temporary folder; return its summary and the records of metrics.jsonl."""
    from lockstep.cluster.launch import launch
    from lockstep.console import Console
    from lockstep.engine.recipe.job import Job

    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        job = Job(recipe=recipe, out=out, **({"checkpoint_every": 0} | options))
        summary = launch(job, device=device, console=Console(as_json=True))
        records = [json.loads(text) for text in (out / "metrics.jsonl").read_text().splitlines()]
    return summary, records


def alternating(sides: Collection[str], number: int) -> list[str]:
    """Return the sides in their order in even rounds, and in reverse in odd rounds."""
    return list(sides)[:: -1 if number % 2 else 1]


def ratios(above: Sequence[float], below: Sequence[float]) -> list[float]:
    """Return the ratio of two sides in each round."""
    return [a / b for a, b in zip(above, below, strict=True)]


def spread(values: Sequence[float], form: str = ".2f", unit: str = "", width: int = 0) -> str:
    """Format the median with the smallest and the largest value: 1.20x (1.10 - 1.30)."""
    middle = f"{statistics.median(values):{form}}".rjust(width)
    return f"{middle}{unit} ({min(values):{form}} - {max(values):{form}})"


def interval(values: Sequence[float]) -> dict[str, float]:
    """Return the mean and the ends of its 95% interval (Student's t)."""
    from scipy.stats import t as student

    mean, half = statistics.fmean(values), 0.0
    if len(values) > 1:
        error = statistics.stdev(values) / math.sqrt(len(values))
        half = float(student.ppf(0.975, len(values) - 1)) * error
    return {"mean": mean, "low": mean - half, "high": mean + half}


def described(**content: Any) -> dict[str, Any]:
    """Return a result that names the machine and the command."""
    from lockstep.bench import machine

    return {"machine": machine.facts(), "command": " ".join(sys.argv), **content}


def save(path: Path | None, document: dict[str, Any]) -> None:
    """Write a result as JSON if the user gave --save."""
    if path is not None:
        path.write_text(json.dumps(document, indent=2) + "\n")
