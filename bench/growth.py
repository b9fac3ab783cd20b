"""Compare a growing batch with a constant one: accuracy, steps, data and time.

    python bench/growth.py --replicas 2 --seeds 3 --save bench/results/growth.json

The baselines are those of bench/large_batch.py. "grown" takes up to eight batches in a step,
"AdaScale" always takes eight, and "eight times" takes eight with the rate and epochs unchanged.
The sides alternate from seed to seed.
"""

from __future__ import annotations

import argparse
import statistics
from dataclasses import replace
from pathlib import Path
from typing import Any

from large_batch import BASELINES, TIMES
from lockstep.engine.recipe.recipe import Recipe
from measuring import alternating, described, save, trained


def sides(base: Recipe) -> dict[str, Recipe]:
    """Return the original recipe, and three that take more samples in a step."""
    most = TIMES * base.global_batch
    return {
        "as it is": base,
        "grown": replace(base, grow_to=most),
        "AdaScale": replace(base, grow_to=most, grow_from=most),
        "eight times": replace(base, global_batch=most),
    }


def outcome(recipe: Recipe, seed: int, replicas: int) -> dict[str, Any]:
    """Train, and return metric, steps, epochs and seconds."""
    summary, _ = trained(replace(recipe, seed=seed), replicas=replicas)
    return {
        "metric": summary["metrics"][recipe.metric],
        "steps": summary["steps"],
        "epochs": summary["epochs"],
        "seconds": summary["time"]["training"],
    }


def main() -> None:
    """Train every side of every problem with every seed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("problems", nargs="*", default=list(BASELINES))
    parser.add_argument("--replicas", type=int, default=2)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--save", type=Path)
    args = parser.parse_args()
    document = described()
    for name in args.problems:
        recipes = sides(BASELINES[name])
        runs: dict[str, list[dict[str, Any]]] = {side: [] for side in recipes}
        for seed in range(args.seeds):
            for side in alternating(recipes, seed):
                runs[side].append(outcome(recipes[side], seed, args.replicas))
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
        save(args.save, document)


if __name__ == "__main__":
    main()
