"""Compare a batch with one eight times as large, with nothing else changed and as advised.

    python bench/large_batch.py --seeds 5 --save bench/results/large_batch.json

The advice is that of `lockstep tune` for this batch: it measures the noise scale along the first
steps of the baseline and derives rate, warmup and epochs from it.

`rates` compares rates on digits: one that is too large, the same with a warmup, and optimizers that
scale each layer's step for a larger batch.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from torch.optim import SGD

from lockstep import models
from lockstep.console import Console
from lockstep.data import fashion_mnist
from lockstep.engine.recipe.builtin import DIGITS, RECIPES
from lockstep.engine.recipe.recipe import Recipe
from lockstep.optimizers import LARS, NovoGrad
from lockstep.scaling.batch.advice import advise
from lockstep.tune import Probe, followed
from lockstep.tune.advise import before_timing
from measuring import described, interval, save, trained

TIMES = 8
WATCHED = 200
"""Steps of the baseline in which the noise scale is measured."""

BASELINES: dict[str, Recipe] = {
    "digits": replace(
        DIGITS,
        model=partial(models.wideresnet, 10, 1, channels=1),
        global_batch=32,
        learning_rate=0.05,
        warmup=0.0,
        epochs=8,
    ),
    "fashion-mnist": replace(
        RECIPES["fashion-mnist"],
        model=partial(models.mlp, (784, 128, 10)),
        data=partial(fashion_mnist, samples=10_000),
        optimizer=partial(SGD, momentum=0.9),
        augment=(),
        channels_last=False,
        global_batch=32,
        learning_rate=0.02,
        warmup=0.0,
        epochs=5,
    ),
}


_NET = replace(
    DIGITS,
    model=partial(models.wideresnet, 10, 1, channels=1),
    optimizer=partial(SGD, momentum=0.9),
    warmup=0.0,
    epochs=8,
)
_SMALL, _LARGE = replace(_NET, global_batch=32), replace(_NET, global_batch=256, warmup=2.0)
RATES: dict[str, Recipe] = {
    "batch 32, SGD at 0.1": replace(_SMALL, learning_rate=0.1),
    "batch 32, SGD at 2.5": replace(_SMALL, learning_rate=2.5),
    "batch 32, SGD at 2.5, warmup": replace(
        _SMALL, learning_rate=2.5, warmup=4.0, warmup_start=1 / 8
    ),
    "batch 256, SGD at 0.1": replace(_LARGE, learning_rate=0.1),
    "batch 256, SGD at 0.8": replace(_LARGE, learning_rate=0.8),
    "batch 256, SGD at 8": replace(_LARGE, learning_rate=8.0),
    "batch 256, LARS at 0.3": replace(
        _LARGE, optimizer=partial(LARS, trust=0.02), learning_rate=0.3
    ),
    "batch 256, NovoGrad at 0.03": replace(_LARGE, optimizer=NovoGrad, learning_rate=0.03),
}
"""Recipes of `rates`, eight epochs each."""


def metrics(recipe: Recipe, seeds: int) -> list[float]:
    """Return the final first metric of each seed."""
    runs = [trained(replace(recipe, seed=seed))[0] for seed in range(seeds)]
    return [summary["metrics"][recipe.metric] for summary in runs]


def advised(recipe: Recipe, folder: Path) -> tuple[Recipe, dict[str, Any]]:
    """Return the recipe as advised for eight times the batch, and the advice."""
    probe = Probe(recipe, "cpu", {}, folder, Console(as_json=True))
    noise, facts = probe.noise(WATCHED)
    measured = before_timing(recipe, facts["train_samples"], noise.critical_batch)
    # The batch is given, so the measured time does not matter.
    measured = replace(measured, seconds={1: 1.0, TIMES * recipe.global_batch: 1.0})
    advice = advise(measured, 1, TIMES * recipe.global_batch)
    facts = {"critical_batch": noise.critical_batch, "rate_factor": advice.rate_factor}
    facts |= {"epochs": advice.epochs, "warmup": advice.warmup}
    return followed(recipe, advice), facts


def main() -> None:
    """Train all sides of each problem, print and save."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("problems", nargs="*", default=[*BASELINES, "rates"])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--save", type=Path)
    args = parser.parse_args()
    document = described()
    for name in args.problems:
        if name == "rates":
            document[name] = {side: metrics(recipe, args.seeds) for side, recipe in RATES.items()}
            for side, values in document[name].items():
                shown = ", ".join(f"{value:.3f}" for value in values)
                print(f"  {side:30} {statistics.fmean(values):.4f}   ({shown})", flush=True)
            continue
        base = BASELINES[name]
        with tempfile.TemporaryDirectory() as folder:
            advice, facts = advised(base, Path(folder))
        sides = {
            "as it was": base,
            "8x, rate unchanged": replace(base, global_batch=TIMES * base.global_batch),
            "8x, as advised": advice,
        }
        found = {side: metrics(recipe, args.seeds) for side, recipe in sides.items()}
        own = found["as it was"]
        result: dict[str, Any] = {"advice": facts, "metrics": found, "differences": {}}
        print(f"{name}: critical batch {facts['critical_batch']:.0f}")
        for side, values in found.items():
            recipe, gap = sides[side], ""
            if side != "as it was":
                pairs = zip(own, values, strict=True)
                d = result["differences"][side] = interval([b - a for a, b in pairs])
                gap = f"   {d['mean']:+.4f} ({d['low']:+.4f} to {d['high']:+.4f})"
            print(
                f"  {side:20} batch {recipe.global_batch:4}, rate {recipe.learning_rate:.3g}, "
                f"{recipe.epochs} epochs: {statistics.fmean(values):.4f} "
                f"+- {statistics.stdev(values):.4f}{gap}",
                flush=True,
            )
        document[name] = result
    save(args.save, document)


if __name__ == "__main__":
    main()
