"""Peak memory of a replica beside a hand-written DDP loop, in units of one gradient buffer.

    python bench/memory.py --save bench/results/memory.json

A model of large layers on tiny batches, so that weights and gradients are all that counts. One
replica of two; one gradient buffer is as large as the model.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from dataclasses import replace
from functools import partial
from pathlib import Path

from lockstep import data, models
from lockstep.bench import machine
from lockstep.bench.assignment import Task
from lockstep.bench.sides import handwritten
from lockstep.bench.synthetic_data import images
from lockstep.bench.turns import Enough, Few, peak_memory
from lockstep.bench.works import WRN_16_2
from lockstep.cluster.launch import launch
from lockstep.console import Console
from lockstep.engine.recipe.builtin import DIGITS
from lockstep.engine.recipe.job import Job
from lockstep.processes.ports import free_port
from lockstep.processes.replicas import run_replicas
from lockstep.world import World

SIZES = (784, 6144, 6144, 10)
BUFFER = 4 * sum(p.numel() for p in models.mlp(SIZES).parameters())
WORK = replace(
    WRN_16_2,
    model=partial(models.mlp, SIZES),
    samples=partial(images, 256, (1, 28, 28), 10),
    batch=8,
    learning_rate=1e-3,
)


def by_hand() -> dict[str, float]:
    """Two replicas of the hand-written loop."""
    port = free_port()

    def replica(rank: int, store: str) -> dict[str, float]:
        task = Task(
            work=WORK,
            samples=WORK.samples(),
            world=World(rank=rank, size=2, local_rank=rank),
            pace=Few(7),
            port=port,
            folder=Path(store).parent,
        )
        try:
            handwritten.run(task)
        except Enough:
            return {"peak_memory_bytes": peak_memory(task.device)}

    return run_replicas(2, replica)


def lockstep(shards: int, exact: bool) -> dict[str, float]:
    """Two replicas with `shards` in all."""
    recipe = replace(
        DIGITS,
        model=partial(models.mlp, SIZES),
        data=partial(data.synthetic, 256, 8, (1, 28, 28), 10),
        augment=(),
        learning_rate=1e-3,
        global_batch=16,
        shards=shards,
    )
    with tempfile.TemporaryDirectory() as folder:
        job = Job(
            recipe=recipe,
            out=Path(folder) / "run",
            replicas=2,
            exact=exact,
            checkpoint_every=0,
            max_steps=7,
        )
        return launch(job, device="cpu", console=Console(as_json=True))


def main() -> None:
    """Three rounds; the median in gradient buffers, relative to the hand-written loop."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--save", type=Path)
    args = parser.parse_args()
    sides = {
        "hand-written DDP": by_hand,
        "lockstep fast": lambda: lockstep(2, False),
        "lockstep exact, 1 shard per replica": lambda: lockstep(2, True),
        "lockstep exact, 2 shards per replica": lambda: lockstep(4, True),
        "lockstep exact, 4 shards per replica": lambda: lockstep(8, True),
        "lockstep exact, 8 shards per replica": lambda: lockstep(16, True),
    }
    peaks: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(args.rounds):
        for name, side in sides.items():
            peaks[name].append(side()["peak_memory_bytes"])
    base = statistics.median(peaks["hand-written DDP"])
    print(f"one gradient buffer: {BUFFER / 2**20:.0f} MiB")
    for name, values in peaks.items():
        extra = (statistics.median(values) - base) / BUFFER
        print(f"{name:40} {statistics.median(values) / 2**20:6.0f} MiB   {extra:+.2f} buffers")
    if args.save:
        document = {"machine": machine.facts(), "buffer_bytes": BUFFER, "peak_bytes": peaks}
        args.save.write_text(json.dumps(document, indent=2) + "\n")


if __name__ == "__main__":
    main()
