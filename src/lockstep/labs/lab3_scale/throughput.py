"""Measure the scaling ratio: images per second on one replica, on two, and on more."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import median

from torch.optim import SGD

from lockstep import models
from lockstep.bench.assignment import Assignment
from lockstep.bench.entries import Entry
from lockstep.bench.measure import Settings, ratios
from lockstep.bench.measure import measure as take_turns
from lockstep.bench.side import Side
from lockstep.bench.sides.lockstep import run
from lockstep.bench.synthetic_data import images
from lockstep.bench.works import Work
from lockstep.console import Console
from lockstep.errors import RunError
from lockstep.labs.shared.apart import Report, separate
from lockstep.tune import Probe
from lockstep.world import gpu_count

MOST = {"cuda": 8, "cpu": 4}
"""The largest number of replicas by device."""
FLOAT = 4
"""Bytes per element of a gradient."""


@dataclass(frozen=True, kw_only=True)
class Throughput:
    """The throughput of this machine."""

    device: str
    """`cpu` or `cuda`."""
    model: str
    replicas: list[int]
    batch: int
    """Samples of one replica in a step, or of all replicas if they share one batch."""
    each: list[list[float]]
    """Images per second by replicas and round, with `batch` samples for each replica."""
    shared: list[list[float]]
    """Images per second by replicas and round, with `batch` samples for all replicas."""
    gradient_bytes: int
    exchange: float
    """Seconds to add up the gradients of two replicas."""

    def ratio(self, rates: list[list[float]]) -> list[list[float]]:
        """Return the speedup over one replica in the same round."""
        return [ratios(many, self.each[0]) for many in rates]

    def step(self) -> float:
        """Return the seconds of a step on one replica."""
        return self.batch / median(self.each[0])


def run_shared(assignment: Assignment) -> None:
    """Run lockstep with one batch of the work's size, cut for all replicas."""
    batch = assignment.work.batch // assignment.world.size
    run(replace(assignment, work=replace(assignment.work, batch=batch)))


SMALL = Work(
    name="wrn-10-1",
    sentence="WideResNet-10-1, 8x8 pixels",
    model=partial(models.wideresnet, 10, 1, channels=1),
    samples=partial(images, 4096, (1, 8, 8), 10),
    batch=64,
    optimizer=partial(SGD, momentum=0.9),
    learning_rate=0.01,
    channels_last=True,
)
LARGE = replace(
    SMALL,
    name="wrn-16-4",
    sentence="WideResNet-16-4, 28x28 pixels",
    model=partial(models.wideresnet, 16, 4, channels=1),
    samples=partial(images, 16_384, (1, 28, 28), 10),
    batch=256,
)
"""The work for GPUs, which would be idle with the small one."""


def sizes_here() -> tuple[str, list[int]]:
    """Return the device, and the numbers of replicas to try: 1, 2, 4, ... up to one per device.

    Two replicas do not share one GPU: with one GPU, use the CPU.
    """
    gpus = gpu_count()
    device, places = ("cuda", gpus) if gpus > 1 else ("cpu", len(os.sched_getaffinity(0)))
    most = min(MOST[device], max(2, places))
    return device, [1 << n for n in range(most.bit_length())]


@separate()
def measure(report: Report, rounds: int = 5, steps: int = 16, warmup: float = 0.4) -> Throughput:
    """Measure in turns, so that a slow second of the machine affects all numbers of replicas."""
    device, replicas = sizes_here()
    work = SMALL if device == "cpu" else LARGE
    each = Side(name="each", sentence="a batch for each", run=run, shards=True)
    shared = Side(name="shared", sentence="one batch for all", run=run_shared, shards=True)
    entries = [Entry(name=f"each {n}", side=each, replicas=n) for n in replicas]
    entries += [Entry(name=f"shared {n}", side=shared, replicas=n) for n in replicas[1:]]
    turns = len(entries) * (rounds + 1)
    done = 0

    def advance(name: str) -> None:
        nonlocal done
        done += 1
        report(0.95 * done / turns, f"{name.split()[1]} replicas")

    # Eager: compiling takes longer than all of this.
    settings = Settings(device=device, rounds=rounds, steps=steps, warmup=warmup, speed="eager")
    found = take_turns(work, entries, settings, advance)["sides"]
    for name, side in found.items():
        if side["error"]:
            raise RunError(f"{name} replicas failed: {side['error']}")
    rates = {
        name: [round(r, 2) for r in side["samples_per_second"]] for name, side in found.items()
    }
    bytes_ = FLOAT * int(found["each 1"]["parameters"])
    report(0.97, "the exchange of gradients")
    return Throughput(
        device=device,
        model=work.sentence,
        replicas=replicas,
        batch=work.batch,
        each=[rates[f"each {n}"] for n in replicas],
        shared=[rates["each 1"], *(rates[f"shared {n}"] for n in replicas[1:])],
        gradient_bytes=bytes_,
        exchange=_exchange(work, device, bytes_ // FLOAT),
    )


def _exchange(work: Work, device: str, elements: int) -> float:
    """Measure the seconds to add up the gradients of two replicas."""
    recipe = work.recipe(work.samples(), 2, "fp32")
    probe = Probe(recipe, device, {}, Path(), Console(as_json=True))
    return probe.exchange(2, elements)[0]
