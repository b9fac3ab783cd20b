"""Measure throughput and time to an accuracy by batch size, over several seeds."""

from __future__ import annotations

import time
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Any

import torch
from torch import nn

from lockstep.labs.shared.apart import Report
from lockstep.labs.shared.digits import Samples, digits
from lockstep.labs.shared.drawing import Figure, axes, dots, line, spread, ticks
from lockstep.report.page import BLUE, GREY, ORANGE

SIZES = (8, 16, 32, 64, 128, 256, 512, 700)
SEEDS = 3
EPOCHS = 40
PATIENCE = 8
"""A run ends after this many epochs without a new best accuracy."""
ENOUGH = 0.97
"""A run ends at this accuracy."""
RATE = 0.05


@dataclass(frozen=True, kw_only=True)
class BatchSizes:
    """The runs at every batch size."""

    device: str
    sizes: list[int]
    throughput: list[list[float]]
    """Images per second by batch size and seed: the median epoch, without the first."""
    curves: list[list[list[list[float]]]]
    """[seconds, accuracy] after each epoch, by batch size and seed."""


def measure(report: Report, sizes: tuple[int, ...] = SIZES, epochs: int = EPOCHS) -> BatchSizes:
    """Train on the digits at every batch size, from the same weights for the same seed."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        samples = digits()
        throughput: list[list[float]] = [[] for _ in sizes]
        curves: list[list[list[list[float]]]] = [[] for _ in sizes]
        # Loop over the seeds outside, so that a slow minute of the machine affects all batch sizes.
        for seed in range(SEEDS):
            for place, size in enumerate(sizes):
                done = (seed * len(sizes) + place) / (SEEDS * len(sizes))
                report(done, f"batch {size}, seed {seed}")
                curve = _train(samples, size, epochs, seed)
                ends = [seconds for seconds, _ in curve]
                lengths = [b - a for a, b in pairwise(ends)]
                throughput[place].append(len(samples) / median(lengths))
                curves[place].append(curve)
    finally:
        torch.set_num_threads(threads)
    device = samples.inputs.device.type
    return BatchSizes(device=device, sizes=list(sizes), throughput=throughput, curves=curves)


def _train(samples: Samples, size: int, epochs: int, seed: int) -> list[list[float]]:
    """Return [seconds of training, accuracy] after each epoch; stop early without progress."""
    torch.manual_seed(seed)
    inputs, targets = samples.inputs, samples.targets
    net = nn.Sequential(
        nn.Flatten(),
        nn.Linear(64, 128),
        nn.ReLU(),
        nn.Linear(128, 128),
        nn.ReLU(),
        nn.Linear(128, 10),
    ).to(inputs.device)
    optimizer = torch.optim.SGD(net.parameters(), lr=RATE)
    curve: list[list[float]] = []
    best, since, spent = 0.0, 0, 0.0
    for _ in range(epochs):
        order = torch.randperm(len(inputs)).to(inputs.device)
        began = time.perf_counter()
        for part in order.split(size):
            loss = nn.functional.cross_entropy(net(inputs[part]), targets[part])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if inputs.is_cuda:
            torch.cuda.synchronize()
        spent += time.perf_counter() - began
        with torch.no_grad():
            right = (net(samples.test_inputs).argmax(1) == samples.test_targets).sum().item()
        accuracy = right / len(samples.test_targets)
        curve.append([round(spent, 5), round(accuracy, 5)])
        best, since = (accuracy, 0) if accuracy > best else (best, since + 1)
        if since >= PATIENCE or best >= ENOUGH:
            break
    return curve


def reached(curve: list[list[float]], target: float) -> tuple[float, int] | None:
    """Return (seconds, epochs) until an accuracy, or None if the run never reached it."""
    for epoch, (seconds, accuracy) in enumerate(curve, 1):
        if accuracy >= target:
            return seconds, epoch
    return None


def throughput(found: BatchSizes) -> Figure:
    """Draw the images per second by batch size, with the range over seeds."""
    middle = [median(one) for one in found.throughput]
    curve = _curve("median", found.sizes, middle, found.throughput, BLUE)
    return {"data": [curve], "layout": _layout(found, "images per second", showlegend=False)}


def time_to(found: BatchSizes, target: float) -> Figure:
    """Draw the seconds until an accuracy by batch size; note runs that never reach it."""
    times, missed = {}, []
    for size, runs in zip(found.sizes, found.curves, strict=True):
        got = [end[0] for end in (reached(curve, target) for curve in runs) if end is not None]
        if got:
            times[size] = got
        if len(got) < len(runs):
            missed.append(f"{size} ({len(runs) - len(got)} of {len(runs)})")
    x = [size for size, got in times.items() for _ in got]
    y = [seconds for got in times.values() for seconds in got]
    middle = [median(got) for got in times.values()]
    data = [
        _curve("median", list(times), middle, list(times.values()), ORANGE),
        dots("each seed", x, y, GREY, size=6),
    ]
    note = f"Never reached at batch {', '.join(missed)}." if missed else ""
    return {"data": data, "layout": _layout(found, f"seconds to accuracy {target:g}"), "note": note}


def _curve(
    name: str, sizes: list[int], middle: list[float], values: list[list[float]], colour: str
) -> Figure:
    curve = line(name, sizes, middle, colour, width=2)
    return spread(curve | {"mode": "lines+markers", "marker": {"size": 8}}, values)


def _layout(found: BatchSizes, title: str, **more: Any) -> Figure:
    zero = {"rangemode": "tozero"}
    return axes("batch size", title, x_axis=ticks(found.sizes), y_axis=zero, **more)
