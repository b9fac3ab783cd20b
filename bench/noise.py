"""Measure what the noise scale costs: the same DDP loop with and without it.

    python bench/noise.py --rounds 9 --save bench/results/noise.json

Two replicas, WideResNet-10-1 on 28x28 images. All loops run in the same processes and alternate.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

from lockstep.engine.exchange.noise import ReplicaNoise
from lockstep.engine.group import Group
from lockstep.models import wideresnet
from lockstep.processes.replicas import run_replicas
from lockstep.scaling.noise import StepNoise
from lockstep.world import World
from measuring import alternating, described, ratios, save

REPLICAS = 2
STEPS = 32
"""Steps in one turn: enough for two of the small exchanges that average the lengths."""


def loop(batch: int, listen: Callable[[Any, int], Any] | None) -> Callable[[], None]:
    """Build a plain loop and return its turn."""
    torch.manual_seed(0)
    model = DistributedDataParallel(wideresnet(10, 1, channels=1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    noise = listen(model, batch * REPLICAS) if listen is not None else None
    inputs, targets = torch.randn(batch, 1, 28, 28), torch.randint(0, 10, (batch,))

    def turn() -> None:
        for _ in range(STEPS):
            cross_entropy(model(inputs), targets).backward()
            if noise is not None:
                noise.step()
            optimizer.step()
            optimizer.zero_grad()

    return turn


def measure(batch: int, rounds: int) -> dict[str, list[float]]:
    """Return the seconds of a step by side and round, as the first replica sees them."""

    def replica(rank: int, store: str) -> dict[str, list[float]]:
        torch.set_num_threads(1)
        group = Group(World(rank=rank, size=REPLICAS, local_rank=rank), store=store)
        sides = {
            "plain": loop(batch, None),
            "replicas": loop(batch, ReplicaNoise.attach),
            "steps": loop(batch, lambda model, size: StepNoise(model.parameters(), size)),
        }
        times: dict[str, list[float]] = {name: [] for name in sides}
        for number in range(rounds + 1):
            for name in alternating(sides, number):
                dist.barrier()
                began = time.perf_counter()
                sides[name]()
                times[name].append((time.perf_counter() - began) / STEPS)
        sides.clear()
        group.leave()
        return {name: found[1:] for name, found in times.items()}

    result: dict[str, list[float]] = run_replicas(REPLICAS, replica)
    return result


def main() -> None:
    """Measure, print and save."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--batch", type=int, nargs="+", default=[32])
    parser.add_argument("--save", type=Path)
    args = parser.parse_args()
    document = described()
    for batch in args.batch:
        found = document[f"batch {batch}"] = measure(batch, args.rounds)
        for name, seconds in found.items():
            extra = [ratio - 1 for ratio in ratios(seconds, found["plain"])]
            print(
                f"batch {batch:4}  {name:9} {1e3 * statistics.median(seconds):7.2f} ms a step   "
                f"{statistics.median(extra):+.1%} ({min(extra):+.1%} to {max(extra):+.1%})"
            )
    save(args.save, document)


if __name__ == "__main__":
    main()
