"""Compare the peak memory of a replica with a hand-written DDP loop, in gradient buffers.

    python bench/memory.py --save bench/results/memory.json

A model of large layers trains on tiny batches, so that weights and gradients take nearly all
memory. The script measures one replica of two; one gradient buffer is as large as the model.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

from lockstep import data, models
from lockstep.bench.assignment import Assignment
from lockstep.bench.sides import handwritten
from lockstep.bench.synthetic_data import images
from lockstep.bench.turns import Enough, Few, peak_memory
from lockstep.bench.works import WORKS
from lockstep.engine.recipe.builtin import DIGITS
from lockstep.processes.ports import free_port
from lockstep.processes.replicas import run_replicas
from lockstep.world import World
from measuring import described, save, trained

SIZES = (784, 6144, 6144, 10)
BUFFER = 4 * sum(p.numel() for p in models.mlp(SIZES).parameters())
WORK = replace(
    WORKS["wrn-16-2"],
    model=partial(models.mlp, SIZES),
    samples=partial(images, 256, (1, 28, 28), 10),
    batch=8,
    learning_rate=1e-3,
)


def by_hand() -> dict[str, float]:
    """Run the hand-written loop on two replicas; return its peak memory."""
    port = free_port()

    def replica(rank: int, store: str) -> dict[str, float]:
        assignment = Assignment(
            work=WORK,
            samples=WORK.samples(),
            world=World(rank=rank, size=2, local_rank=rank),
            pace=Few(7),
            port=port,
            folder=Path(store).parent,
        )
        try:
            handwritten.run(assignment)
        except Enough:
            return {"peak_memory_bytes": peak_memory(assignment.device)}

    return run_replicas(2, replica)


def lockstep(shards: int, exact: bool) -> dict[str, float]:
    """Run lockstep on two replicas with `shards` in all; return its summary."""
    recipe = replace(
        DIGITS,
        model=partial(models.mlp, SIZES),
        data=partial(data.synthetic, 256, 8, (1, 28, 28), 10),
        augment=(),
        learning_rate=1e-3,
        global_batch=16,
        shards=shards,
    )
    return trained(recipe, replicas=2, exact=exact, max_steps=7)[0]


def main() -> None:
    """Print the median peak in gradient buffers, relative to the hand-written loop."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--save", type=Path)
    args = parser.parse_args()
    sides: dict[str, Callable[[], dict[str, float]]] = {
        "hand-written DDP": by_hand,
        "lockstep fast": partial(lockstep, 2, False),
    }
    for shards in (1, 2, 4, 8):
        name = f"lockstep exact, {shards} shard{'s' * (shards > 1)} per replica"
        sides[name] = partial(lockstep, 2 * shards, True)
    peaks: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(args.rounds):
        for name, side in sides.items():
            peaks[name].append(side()["peak_memory_bytes"])
    base = statistics.median(peaks["hand-written DDP"])
    print(f"one gradient buffer: {BUFFER / 2**20:.0f} MiB")
    for name, values in peaks.items():
        extra = (statistics.median(values) - base) / BUFFER
        print(f"{name:40} {statistics.median(values) / 2**20:6.0f} MiB   {extra:+.2f} buffers")
    save(args.save, described(buffer_bytes=BUFFER, peak_bytes=peaks))


if __name__ == "__main__":
    main()
