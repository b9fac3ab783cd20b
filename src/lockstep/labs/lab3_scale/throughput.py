"""Measure images per second on one replica and on several, and extrapolate the speedup."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import median

import numpy
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
from lockstep.errors import RunError
from lockstep.labs.shared.apart import Report, separate
from lockstep.labs.shared.drawing import Figure, axes, dots, line, spread, ticks
from lockstep.report.page import BLUE, GREY, ORANGE, PURPLE
from lockstep.world import gpu_count

MOST = {"cuda": 8, "cpu": 4}
"""The largest number of replicas by device."""
FLOAT = 4
"""Bytes per element of a gradient."""
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
PUBLISHED = (4, 615.0, 2389.0)
"""GPUs, and images per second on one and on all, in a saved workshop run."""
SHOWN = (1, 2, 4, 8, 16, 32, 64)
COLUMNS = ("replicas", "images per second", "times one replica", "serial share")


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
        report(done / turns, f"{name.split()[1]} replicas")

    # Eager: compiling takes longer than all of this.
    settings = Settings(device=device, rounds=rounds, steps=steps, warmup=warmup, speed="eager")
    found = take_turns(work, entries, settings, advance)["sides"]
    for name, side in found.items():
        if side["error"]:
            raise RunError(f"{name} replicas failed: {side['error']}")
    rates = {
        name: [round(r, 2) for r in side["samples_per_second"]] for name, side in found.items()
    }
    return Throughput(
        device=device,
        model=work.sentence,
        replicas=replicas,
        batch=work.batch,
        each=[rates[f"each {n}"] for n in replicas],
        shared=[rates["each 1"], *(rates[f"shared {n}"] for n in replicas[1:])],
        gradient_bytes=FLOAT * int(found["each 1"]["parameters"]),
    )


def amdahl(replicas: float, serial: float) -> float:
    """Return the speedup of a batch if a share `serial` of its time does not shrink.

    >>> amdahl(4, 0.0), amdahl(4, 1.0), round(amdahl(64, 0.05), 1)
    (4.0, 1.0, 15.4)
    """
    return 1.0 / (serial + (1.0 - serial) / replicas)


def serial_share(replicas: int, ratio: float) -> float:
    """Return the serial share that explains a ratio: the inverse of `amdahl`.

    >>> round(serial_share(4, amdahl(4, 0.05)), 6)
    0.05
    """
    share = (replicas / ratio - 1.0) / (replicas - 1.0)
    return min(1.0, max(0.0, share))


def with_link(replicas: float, step: float, gradient_bytes: float, speed: float) -> float:
    """Return the throughput relative to one replica, on a ring of `speed` bytes per second.

    Every replica computes its own batch for `step` seconds, then sends 2 (N - 1) / N of its
    gradients. Nothing hides behind the backward pass: this is the worst case.

    >>> with_link(1, 0.1, 1e9, 1e9), with_link(4, 0.1, 1e8, 1e12) > 3.99
    (1.0, True)
    """
    exchange = 2.0 * (replicas - 1.0) / replicas * gradient_bytes / speed
    return replicas * step / (step + exchange)


def figure(found: Throughput, *, serial: float, megabytes: float, speed: float) -> Figure:
    """Draw the measured ratios, and two lines that follow from the learner's assumptions.

    `serial` is a share of a step; `megabytes` of gradients travel at `speed` gigabytes per second.
    """
    x = numpy.geomspace(SHOWN[0], SHOWN[-1], 49)
    count, one, many = PUBLISHED
    cut = [amdahl(n, serial) for n in x]
    linked = [with_link(n, found.step(), megabytes * 1e6, speed * 1e9) for n in x]
    places = [round(float(n), 3) for n in x]
    data = [
        line("ideal", places, places, GREY, dash="dot", width=1.5),
        line("each, by link", places, linked, BLUE),
        line("cut, by Amdahl", places, cut, ORANGE),
        _measured("each, measured", found, found.each, BLUE, "circle"),
        _measured("cut, measured", found, found.shared, ORANGE, "square"),
        dots("published", [count], [many / one], PURPLE, symbol="diamond"),
    ]
    layout = axes(
        "replicas",
        "times one replica",
        x_axis=ticks(SHOWN),
        y_axis=ticks(SHOWN),
    )
    last = SHOWN[-1]
    note = (
        f"On {last} replicas: {linked[-1]:.3g}x with a batch for each "
        f"({linked[-1] / last:.0%} of ideal), {cut[-1]:.3g}x with one batch cut into {last}."
    )
    return {"data": data, "layout": layout, "note": note}


def _measured(
    name: str, found: Throughput, rates: list[list[float]], colour: str, symbol: str
) -> dict[str, object]:
    times = found.ratio(rates)
    middle = [median(t) for t in times]
    # One replica is the unit, so it has no spread.
    return spread(
        dots(name, found.replicas[1:], middle[1:], colour, symbol=symbol, size=11), times[1:]
    )


def rows(found: Throughput) -> list[list[str]]:
    """Return the table rows: replicas, images per second, ratio with range, serial share."""
    shown = []
    kinds = (("a batch for each", found.each), ("one batch cut", found.shared))
    for name, rates in kinds:
        for n, own, times in zip(found.replicas, rates, found.ratio(rates), strict=True):
            if n == 1 and rates is found.shared:
                continue
            share = f"{serial_share(n, median(times)):.1%}" if n > 1 else "-"
            shown.append([f"{n}, {name}", f"{median(own):,.0f}", _range(times), share])
    count, one, many = PUBLISHED
    published = f"{serial_share(count, many / one):.1%}"
    shown.append([f"{count} GPUs, published", f"{many:,.0f}", f"{many / one:.2f}", published])
    return shown


def _range(values: Sequence[float]) -> str:
    if max(values) - min(values) < 0.005:
        return f"{median(values):.2f}"
    return f"{median(values):.2f} ({min(values):.2f} - {max(values):.2f})"
