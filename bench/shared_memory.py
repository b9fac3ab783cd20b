"""Compare the time to add gradients through gloo and through shared memory.

    python bench/shared_memory.py --rounds 15 --save bench/results/shared-memory.json

Replicas on this machine add buffers of several sizes, alternating between both ways. They add small
buffers many times in a row, because they do not all leave a barrier at the same moment.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from lockstep.engine.exchange.shared_memory import SharedMemory, set_up
from lockstep.engine.group import Group
from lockstep.processes.replicas import run_replicas
from lockstep.world import World
from measuring import described, ratios, save, spread

ELEMENTS = 4_000_000
"""Fewest elements added in one turn."""
SIZES = {"100 kB": 25_000, "400 kB": 100_000, "3 MB": 700_000, "100 MB": 25_000_000}


def measure(replicas: int, rounds: int) -> dict[str, Any]:
    """Return the seconds of each sum by size and way, as the first replica sees them."""

    def replica(rank: int, store: str) -> dict[str, Any]:
        torch.set_num_threads(1)
        group = Group(World(rank=rank, size=replicas, local_rank=rank), store=store)
        memory = set_up(group, 60.0)
        if not isinstance(memory, SharedMemory):
            raise RuntimeError(f"no shared memory here: {memory}")
        ways: dict[str, Callable[[torch.Tensor], Any]] = {
            "gloo": dist.all_reduce,
            "shared memory": memory.add,
        }
        found: dict[str, Any] = {}
        for size, length in SIZES.items():
            buffer = torch.zeros(length)
            times: dict[str, list[float]] = {way: [] for way in ways}
            repeats = max(1, ELEMENTS // length)
            for _ in range(rounds + 1):
                for way, add in ways.items():
                    dist.barrier()
                    began = time.perf_counter()
                    for _ in range(repeats):
                        add(buffer)
                    times[way].append((time.perf_counter() - began) / repeats)
            found[size] = {way: seconds[1:] for way, seconds in times.items()}
        group.leave()
        return found

    result: dict[str, Any] = run_replicas(replicas, replica)
    return result


def main() -> None:
    """Measure, print and save."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--replicas", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--save", type=Path)
    args = parser.parse_args()
    document = described()
    print(f"{len(os.sched_getaffinity(0))} cores")
    for replicas in args.replicas:
        found = document[f"{replicas} replicas"] = measure(replicas, args.rounds)
        for size, ways in found.items():
            gain = spread(ratios(ways["gloo"], ways["shared memory"]), ".1f", "x", width=5)
            cells = [f"{way} {1e3 * statistics.median(t):8.2f} ms" for way, t in ways.items()]
            print(f"{replicas} replicas {size:>8}  {'   '.join(cells)}   {gain}")
    save(args.save, document)


if __name__ == "__main__":
    main()
