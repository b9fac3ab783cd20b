"""A batch that grows beside one that stays: accuracy, steps, data and time.

    python bench/growth.py --replicas 2 --seeds 3 --save bench/results/growth.json

The baselines are those of bench/large_batch.py. "grown" may take up to eight batches in a step,
"AdaScale" always takes eight, "eight times" does so with an unchanged rate and as many epochs.
Sides alternate from seed to seed.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from large_batch import BASELINES, TIMES
from lockstep.bench import machine
from lockstep.cluster.launch import launch
from lockstep.console import Console
from lockstep.engine.recipe.job import Job
from lockstep.engine.recipe.recipe import Recipe


def sides(base: Recipe) -> dict[str, Recipe]:
    """The recipe as it is, and three ways to take more in a step."""
    most = TIMES * base.global_batch
    return {
        "as it is": base,
        "grown": replace(base, grow_to=most),
        "AdaScale": replace(base, grow_to=most, grow_from=most),
        "eight times": replace(base, global_batch=most),
    }


def trained(recipe: Recipe, seed: int, replicas: int) -> dict[str, Any]:
    """What one run ends with."""
    with tempfile.TemporaryDirectory() as folder:
        job = Job(
            recipe=replace(recipe, seed=seed),
            out=Path(folder) / "run",
            replicas=replicas,
            checkpoint_every=0,
        )
        summary = launch(job, device="cpu", console=Console(as_json=True))
    return {
        "metric": summary["metrics"][recipe.metric],
        "steps": summary["steps"],
        "epochs": summary["epochs"],
        "seconds": summary["time"]["training"],
    }


def main() -> None:
    """Every side of every problem with every seed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("problems", nargs="*", default=list(BASELINES))
    parser.add_argument("--replicas", type=int, default=2)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--save", type=Path)
    args = parser.parse_args()
    document: dict[str, Any] = {"machine": machine.facts(), "command": " ".join(sys.argv)}
    for name in args.problems:
        recipes = sides(BASELINES[name])
        runs: dict[str, list[dict[str, Any]]] = {side: [] for side in recipes}
        for seed in range(args.seeds):
            for side in list(recipes)[:: -1 if seed % 2 else 1]:
                runs[side].append(trained(recipes[side], seed, args.replicas))
        document[name] = runs
        print(f"\n{name:16}{'accuracy (range)':>26}{'steps':>8}{'epochs':>8}{'training':>10}")
        for side, found in runs.items():
            values = [run["metric"] for run in found]
            middle = {k: statistics.median(run[k] for run in found) for k in found[0]}
            print(
                f"  {side:14}{statistics.fmean(values):10.4f} ({min(values):.4f} - "
                f"{max(values):.4f}){middle['steps']:7.0f}{middle['epochs']:8.1f}"
                f"{middle['seconds']:8.1f} s",
                flush=True,
            )
        if args.save:
            args.save.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
