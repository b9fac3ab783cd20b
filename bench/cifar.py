"""Train variants of the recipe `cifar10-fast` with several seeds each, on one GPU.

    python bench/cifar.py --folder ~/cifar10 --seeds 3 --save bench/results/cifar.json
    python bench/cifar.py --folder ~/cifar10 "epochs=9" "learning_rate=0.2 shards=8"

A variant is a list of changes to the recipe. It may name the numbers of a recipe, and

    optimizer=muon|sgd    whiten=yes|no     width=64        crop=2       smoothing=0.2
    momentum, iterations, rest, rest_momentum, rest_weight_decay          (muon)
    momentum, weight_decay, peak, start, floor                            (sgd)

The seconds count the training steps after the first, which also does the set-up; the time of the
final test stands beside them. Variants alternate, so that a slow moment does not hit only one.
"""

from __future__ import annotations

import argparse
import statistics
import time
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import Any

from torch.optim import SGD

from lockstep import data, models
from lockstep.data import flip_alternating, pad_crop
from lockstep.engine.recipe.builtin.cifar10_fast import CIFAR10_FAST
from lockstep.engine.recipe.recipe import Recipe
from lockstep.engine.step.metrics import cross_entropy
from lockstep.errors import LockstepError
from lockstep.scaling.optimizers.muon import Muon
from lockstep.scaling.rates.schedules import triangle
from measuring import described, save, trained

VARIANTS = [
    "",
    "shards=1",
    "shards=8",
    "epochs=7",
    "epochs=9",
    "global_batch=1000 learning_rate=0.17",
    "learning_rate=0.18",
    "learning_rate=0.32",
    "rest=5",
    "rest_weight_decay=0.0012",
    "iterations=5",
    "optimizer=sgd epochs=10 global_batch=1000",
]
MUON = {"rest_weight_decay": 2.4e-3}
# Rate of Jordan 2024, for Nesterov momentum and a mean over the batch.
SGD_RATE = 1.5


def main() -> None:
    """Train every variant with every seed; print accuracies and seconds."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("variants", nargs="*", default=VARIANTS)
    parser.add_argument("--folder", type=Path, required=True, help="folder of the data files")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--speed", choices=["auto", "eager", "compile", "graph"], default="auto")
    parser.add_argument("--samples", type=int, help="train on this many samples only")
    parser.add_argument("--test-samples", type=int, help="test on this many samples only")
    parser.add_argument("--max-minutes", type=float, default=9.0, help="stop after this time")
    parser.add_argument("--save", type=Path)
    args = parser.parse_args()
    load = partial(
        data.cifar10,
        folder=args.folder,
        samples=args.samples,
        test_samples=args.test_samples,
    )
    recipes = {text or "as it is": replace(changed(text), data=load) for text in args.variants}
    document = described()
    document["runs"] = {name: [] for name in recipes}
    begin = time.monotonic()
    for seed in range(args.seeds):
        for name, recipe in recipes.items():
            if time.monotonic() - begin > 60 * args.max_minutes:
                print("time is up")
                break
            try:
                run = measured(replace(recipe, seed=seed), args.device, args.speed)
            except LockstepError as error:
                print(f"{name:50} seed {seed}  {error}", flush=True)
                continue
            document["runs"][name].append(run)
            print(f"{name:50} seed {seed}  {line([run])}", flush=True)
            save(args.save, document)
    header = f"{'accuracy: mean, lowest':>28}{'training':>12}{'steady':>10}{'test':>9}"
    print(f"\n{'variant':50} {header}")
    for name, runs in document["runs"].items():
        if runs:
            print(f"{name:50} {line(runs)}")


def changed(text: str) -> Recipe:
    """Return the recipe with the changes of one variant."""
    given = {name: value(v) for name, v in (part.split("=") for part in text.split())}
    recipe = CIFAR10_FAST
    width = given.pop("width", 64)
    whiten = given.pop("whiten", "yes") == "yes"
    recipe = replace(
        recipe,
        model=partial(models.quicknet, widths=(width, 4 * width, 4 * width), whiten=whiten),
        loss=partial(cross_entropy, smoothing=given.pop("smoothing", 0.2)),
        augment=(
            partial(pad_crop, padding=given.pop("crop", 2), mode="reflect"),
            flip_alternating,
        ),
    )
    own = {field.name for field in fields(Recipe)} - {"optimizer"}
    changes = {name: given.pop(name) for name in list(given) if name in own}
    if given.pop("optimizer", "muon") == "sgd":
        shape = {"peak": 0.23, "start": 0.2, "floor": 0.07}
        shape |= {name: given.pop(name) for name in list(given) if name in shape}
        sgd = {"momentum": 0.85, "weight_decay": 1.33e-3, "nesterov": True} | given
        recipe = replace(
            recipe,
            optimizer=partial(SGD, **sgd),
            schedule=partial(triangle, **shape),
            learning_rate=SGD_RATE,
        )
    else:
        recipe = replace(recipe, optimizer=partial(Muon, **(MUON | given)))
    return replace(recipe, **changes)


def value(text: str) -> Any:
    """Read a text as an integer, as a number, or as text."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            pass
    return text


def measured(recipe: Recipe, device: str, speed: Any) -> dict[str, Any]:
    """Train once; return the accuracies and the seconds."""
    started = time.time()
    summary, records = trained(recipe, device, speed=speed)
    seconds, rate = summary["time"], summary["samples_per_second"]
    rates = [r["samples_per_second"] for r in records if r["kind"] == "train"]
    epochs = [record["accuracy"] for record in records if record["kind"] == "test"]
    return {
        "seed": recipe.seed,
        "accuracy": summary["metrics"]["accuracy"],
        "accuracies": epochs,
        # Counts the first step as long as the others.
        "training_seconds": summary["train_samples"] * recipe.epochs / rate,
        "with_first_step": seconds["training"],
        # At the rate of the second half, which neither records nor compiles.
        "steady_seconds": summary["train_samples"]
        * recipe.epochs
        / statistics.median(rates[len(rates) // 2 :]),
        "process_seconds_to_target": None
        if summary["seconds_to_target"] is None
        else summary["began_at"] + summary["seconds_to_target"] - started,
        "speed": summary["speed"],
        "test_seconds": seconds["evaluation"] / len(epochs),
        "start_seconds": seconds["start-up"],
        "seconds_to_target": summary["seconds_to_target"],
        "peak_memory_bytes": summary["peak_memory_bytes"],
        "machine": summary["machine"],
        "recipe": summary["recipe"],
    }


def line(runs: list[dict[str, Any]]) -> str:
    """Format accuracy and seconds of one or several runs."""
    hits = [run["accuracy"] for run in runs]
    spread = f" +- {statistics.stdev(hits) / len(hits) ** 0.5:.4f}" if len(hits) > 1 else ""
    training = statistics.median(run["training_seconds"] for run in runs)
    test = statistics.median(run["test_seconds"] for run in runs)
    mean = f"{statistics.mean(hits):.4f}{spread}"
    steady = statistics.median(run["steady_seconds"] for run in runs)
    return f"{mean:>17} {min(hits):>10.4f}{training:>10.2f} s{steady:>8.2f} s{test:>7.2f} s"


if __name__ == "__main__":
    main()
