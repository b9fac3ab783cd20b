"""Replicas, modes and a hand-written DDP loop side by side, alternating, one thread each.

    python bench/throughput.py --rounds 5 --steps 30 --save bench/results/throughput.json

WideResNet-16-2 on 28x28 images, 64 samples per replica. Ratios are taken within a round, between
neighbours in time, and reported as the median with the range over the rounds.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import handwritten
import machine
from lockstep import data, models
from lockstep.cluster.launch import launch
from lockstep.cluster.local import run_replicas
from lockstep.console import Console
from lockstep.engine.job import Job
from lockstep.engine.recipe import Recipe
from lockstep.engine.recipes import DIGITS

BATCH = 64


def recipe(replicas: int) -> Recipe:
    """64 samples per replica in one shard each: the shapes of all sides are equal."""
    return Recipe(
        name="bench",
        model=partial(models.wideresnet, depth=16, width=2, channels=1),
        data=partial(data.synthetic, samples=2048, test_samples=8, shape=(1, 28, 28), classes=10),
        loss=DIGITS.loss,
        metrics=DIGITS.metrics,
        optimizer=DIGITS.optimizer,
        learning_rate=0.1,
        channels_last=True,
        global_batch=BATCH * replicas,
        shards=replicas,
        epochs=1000,
    )


def lockstep(replicas: int, exact: bool, steps: int) -> dict[str, float]:
    """Samples per second of lockstep itself."""
    with tempfile.TemporaryDirectory() as folder:
        job = Job(
            recipe=recipe(replicas),
            out=Path(folder) / "run",
            replicas=replicas,
            exact=exact,
            checkpoint_every=0,
            max_steps=steps + 1,
        )
        return launch(job, device="cpu", console=Console(as_json=True))


def by_hand(replicas: int, steps: int) -> dict[str, float]:
    """Samples per second of the hand-written loop."""
    return run_replicas(
        replicas, lambda rank, store: handwritten.replica(rank, replicas, store, BATCH, steps)
    )


def main() -> None:
    """Alternate the sides, print ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--save", type=Path)
    args = parser.parse_args()
    sides = {
        "lockstep fast, 1 replica": lambda: lockstep(1, False, args.steps),
        "hand-written DDP, 1 replica": lambda: by_hand(1, args.steps),
        "lockstep fast, 2 replicas": lambda: lockstep(2, False, args.steps),
        "hand-written DDP, 2 replicas": lambda: by_hand(2, args.steps),
        "lockstep exact, 2 replicas": lambda: lockstep(2, True, args.steps),
    }
    rates: dict[str, list[float]] = {name: [] for name in sides}
    memory: dict[str, float] = {}
    for number in range(args.rounds):
        order = list(sides) if number % 2 == 0 else list(reversed(sides))
        for name in order:
            result = sides[name]()
            rates[name].append(result["samples_per_second"])
            memory[name] = result["peak_memory_bytes"]
    ratios = {
        "2 replicas / 1": ("lockstep fast, 2 replicas", "lockstep fast, 1 replica"),
        "fast / hand-written, 1": ("lockstep fast, 1 replica", "hand-written DDP, 1 replica"),
        "fast / hand-written, 2": ("lockstep fast, 2 replicas", "hand-written DDP, 2 replicas"),
        "exact / fast, 2": ("lockstep exact, 2 replicas", "lockstep fast, 2 replicas"),
    }
    document = {"machine": machine.facts(), "command": " ".join(sys.argv), "samples_per_second": {}}
    for name, values in rates.items():
        document["samples_per_second"][name] = values
        print(
            f"{name:32} {statistics.median(values):8.1f} samples/s   "
            f"({min(values):.1f} - {max(values):.1f})   {memory[name] / 2**20:.0f} MiB peak"
        )
    document["ratios"] = {}
    for name, (over, under) in ratios.items():
        values = [a / b for a, b in zip(rates[over], rates[under], strict=True)]
        document["ratios"][name] = values
        print(
            f"{name:32} {statistics.median(values):8.3f}x           "
            f"({min(values):.3f} - {max(values):.3f})"
        )
    if args.save:
        args.save.write_text(json.dumps(document, indent=2) + "\n")


if __name__ == "__main__":
    main()
