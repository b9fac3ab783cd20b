"""A recipe on one CPU core, with and without keeping freed memory, in turns.

python bench/freed_memory.py --rounds 5 --out bench/results/freed-memory.json
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from pathlib import Path

import torch

from lockstep.engine.recipe import prepare
from own_loop import by_recipe


def main() -> None:
    """Measure in turns, in an order that is reversed from round to round."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    sides = {"kept": prepare.keep_freed_memory, "returned": lambda: None}
    rates: dict[str, list[float]] = {side: [] for side in sides}
    for number in range(given.rounds):
        for side in list(sides)[:: 1 if number % 2 == 0 else -1]:
            prepare.keep_freed_memory = sides[side]
            with tempfile.TemporaryDirectory() as folder:
                run = Path(folder) / "run"
                rates[side].append(by_recipe("wideresnet", 16, 1, False, "cpu", run))
    ratios = [a / b for a, b in zip(rates["kept"], rates["returned"], strict=True)]
    found = {
        "torch": torch.__version__,
        "samples_per_second": rates,
        "kept / returned": [statistics.median(ratios), min(ratios), max(ratios)],
    }
    given.out.write_text(json.dumps(found, indent=2) + "\n")
    print(found)


if __name__ == "__main__":
    main()
