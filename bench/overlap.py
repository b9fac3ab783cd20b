"""Time a step of `lockstep.Loop` on two machines, with and without exchange during backward.

    sudo python bench/overlap.py --rounds 5 --save bench/results/overlap.json

Two network namespaces, joined by a link of --mbit, stand for the machines; each has one core. A
recipe and hand-written DDP take the same steps. Needs root, ip and tc.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

import lockstep
from exchange import thin_link
from lockstep import models
from lockstep.cluster.launch import launch
from lockstep.console import Console
from lockstep.data import Data, Tensors
from lockstep.engine.program.exchange import Carrier
from lockstep.engine.recipe.job import Job
from lockstep.engine.recipe.recipe import Recipe
from measuring import alternating, described, ratios, save, spread

SIDES = ("loop", "loop, after backward", "recipe", "handwritten")
BATCH = 16
"""Samples per replica."""
SKIPPED = 3
"""Steps before the first that counts."""
MODEL = partial(models.wideresnet, depth=16, width=4, channels=1)
"""11 MB of gradients."""
marks: list[float] = []


def samples() -> Data:
    """Return random images."""
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(512, 1, 28, 28, generator=generator)
    targets = torch.randint(0, 10, (512,), generator=generator)
    return Data(train=Tensors(inputs, targets), test=Tensors(inputs[:8], targets[:8]))


def noted(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Return the loss of each sample; in training, also note the time."""
    if outputs.requires_grad:
        marks.append(time.perf_counter())
    return functional.cross_entropy(outputs, targets, reduction="none")


def by_loop(steps: int, out: Path) -> None:
    """Train by a Loop."""
    with lockstep.Loop(
        global_batch=2 * BATCH,
        shards=2,
        out=out,
        checkpoint_every=0,
        max_steps=steps,
        check_every=0,
        quiet=True,
    ) as loop:
        model = loop.model(MODEL())
        sgd = loop.optimizer(torch.optim.SGD(model.parameters(), lr=0.01))
        batches = loop.batches(samples().train)
        for _ in loop.epochs(1000):
            for batch in batches:
                loop.step(batch, lambda b: noted(model(b[0]), b[1]), sgd)


def by_recipe(steps: int, out: Path) -> None:
    """Train a recipe."""
    recipe = Recipe(
        name="overlap",
        model=MODEL,
        data=samples,
        loss=noted,
        metrics={"accuracy": lambda o, t: (o.argmax(1) == t).float()},
        optimizer=torch.optim.SGD,
        learning_rate=0.01,
        global_batch=2 * BATCH,
        shards=2,
        epochs=1000,
    )
    job = Job(recipe=recipe, out=out, replicas=2, checkpoint_every=0, max_steps=steps)
    launch(job, device="cpu", console=Console(quiet=True))


def handwritten(steps: int, out: Path) -> None:
    """Train by DDP as it is."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    model = DistributedDataParallel(MODEL())
    sgd = torch.optim.SGD(model.parameters(), lr=0.01)
    train = samples().train
    for step in range(steps):
        mine = [(step * BATCH + n) % len(train) for n in range(BATCH)]
        x = train.inputs[mine]
        sgd.zero_grad()
        noted(model(x), train.targets[mine]).mean().backward()
        sgd.step()


def replica(side: str, out: Path, steps: int) -> None:
    """Run one replica in its namespace and print when its steps began."""
    if side == "loop, after backward":
        Carrier.overlaps = False  # type: ignore[assignment,method-assign]
    work = {"recipe": by_recipe, "handwritten": handwritten}.get(side, by_loop)
    work(steps + SKIPPED + 1, out)
    print(json.dumps(marks[SKIPPED : SKIPPED + steps + 1]), flush=True)
    os._exit(0)


def over(ends: list[tuple[str, str]], side: str, steps: int, port: int) -> float:
    """Return the median seconds of a step of the first replica."""
    processes = []
    with tempfile.TemporaryDirectory() as folder:
        for rank, (space, device) in enumerate(ends):
            command = ["ip", "netns", "exec", space, "taskset", "-c", str(rank), sys.executable]
            command += [__file__, "--side", side, "--out", f"{folder}/run", "--steps", str(steps)]
            world = {"RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_RANK": "0"}
            world |= {"MASTER_ADDR": "10.77.0.1", "MASTER_PORT": str(port)}
            env = {**os.environ, **world, "GLOO_SOCKET_IFNAME": device, "OMP_NUM_THREADS": "1"}
            pipe = subprocess.PIPE
            processes.append(
                subprocess.Popen(command, env=env, stdout=pipe, stderr=pipe, text=True)
            )
        try:
            outputs = [p.communicate(timeout=300) for p in processes]
        finally:
            for process in processes:
                process.kill()
    for process, (_, said) in zip(processes, outputs, strict=True):
        if process.returncode:
            raise RuntimeError(said)
    found = json.loads(outputs[0][0].strip().splitlines()[-1])
    return statistics.median(b - a for a, b in pairwise(found))


def main() -> None:
    """Measure all sides in turns; with --side, run one replica."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--mbit", type=int, default=500)
    parser.add_argument("--note", default="", help="what else ran on the machine")
    parser.add_argument("--save", type=Path)
    for name in ("--side", "--out"):
        parser.add_argument(name, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.side:
        replica(args.side, Path(args.out), args.steps)
        return
    seconds: dict[str, list[float]] = {side: [] for side in SIDES}
    with thin_link(args.mbit) as ends:
        for number in range(args.rounds):
            for place, side in enumerate(alternating(SIDES, number)):
                port = 29700 + number * len(SIDES) + place
                seconds[side].append(over(ends, side, args.steps, port))
    document: dict[str, Any] = described(note=args.note) | {"mbit": args.mbit, "seconds": seconds}
    for side, own in seconds.items():
        gain = ratios(own, seconds["loop"])
        milliseconds = [1e3 * s for s in own]
        print(
            f"{side:22} {spread(milliseconds, '.1f', ' ms a step', width=7)}   "
            f"{spread(gain, '.2f', ' times as long as the loop', width=5)}"
        )
    save(args.save, document)


if __name__ == "__main__":
    main()
