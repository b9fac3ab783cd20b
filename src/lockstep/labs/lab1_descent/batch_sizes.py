"""Measure throughput and time to an accuracy by batch size, over several seeds."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Any

import torch
from torch import Tensor, nn

from lockstep.data.digits import digits
from lockstep.report.page import BLUE, GREY, ORANGE

SIZES = (8, 16, 32, 64, 128, 256, 512, 700)
SEEDS = 3
EPOCHS = 40
PATIENCE = 8
"""A run ends after this many epochs without a new best accuracy."""
ENOUGH = 0.97
"""A run ends at this accuracy."""
RATE = 0.05
Report = Callable[[float, str], None]


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
    device = "cuda" if torch.cuda.is_available() else "cpu"
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        train, test = ([torch.as_tensor(part).to(device) for part in pair] for pair in _images())
        throughput: list[list[float]] = [[] for _ in sizes]
        curves: list[list[list[list[float]]]] = [[] for _ in sizes]
        # Loop over the seeds outside, so that a slow minute of the machine affects all batch sizes.
        for seed in range(SEEDS):
            for place, size in enumerate(sizes):
                done = (seed * len(sizes) + place) / (SEEDS * len(sizes))
                report(done, f"batch {size}, seed {seed}")
                curve = _train(train, test, size, epochs, seed)
                ends = [seconds for seconds, _ in curve]
                lengths = [b - a for a, b in pairwise(ends)]
                throughput[place].append(len(train[0]) / median(lengths))
                curves[place].append(curve)
    finally:
        torch.set_num_threads(threads)
    return BatchSizes(device=device, sizes=list(sizes), throughput=throughput, curves=curves)


def _images() -> Any:
    data = digits()
    assert data.prepare is not None
    return [(data.prepare(part.inputs), part.targets) for part in (data.train, data.test)]


def _train(
    train: list[Tensor], test: list[Tensor], size: int, epochs: int, seed: int
) -> list[list[float]]:
    """Return [seconds of training, accuracy] after each epoch; stop early without progress."""
    torch.manual_seed(seed)
    inputs, targets = train
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
        _finish(inputs)
        spent += time.perf_counter() - began
        with torch.no_grad():
            right = (net(test[0]).argmax(1) == test[1]).sum().item()
        accuracy = right / len(test[1])
        curve.append([round(spent, 5), round(accuracy, 5)])
        best, since = (accuracy, 0) if accuracy > best else (best, since + 1)
        if since >= PATIENCE or best >= ENOUGH:
            break
    return curve


def _finish(tensor: Tensor) -> None:
    if tensor.is_cuda:
        torch.cuda.synchronize()


def reached(curve: list[list[float]], target: float) -> tuple[float, int] | None:
    """Return (seconds, epochs) until an accuracy, or None if the run never reached it."""
    for epoch, (seconds, accuracy) in enumerate(curve, 1):
        if accuracy >= target:
            return seconds, epoch
    return None


def throughput(found: BatchSizes) -> dict[str, Any]:
    """Draw the images per second by batch size, with the range over seeds."""
    middle = [round(median(one)) for one in found.throughput]
    layout = {
        "xaxis": _sizes(found),
        "yaxis": {"title": {"text": "images per second"}, "rangemode": "tozero"},
        "showlegend": False,
    }
    return {"data": [_spread(found.sizes, middle, found.throughput, BLUE)], "layout": layout}


def time_to(found: BatchSizes, target: float) -> dict[str, Any]:
    """Draw the seconds until an accuracy by batch size; note runs that never reach it."""
    times = []
    missed = []
    for size, runs in zip(found.sizes, found.curves, strict=True):
        got = [end[0] for end in (reached(curve, target) for curve in runs) if end is not None]
        times.append(got)
        if len(got) < len(runs):
            missed.append(f"{size} ({len(runs) - len(got)} of {len(runs)})")
    here = [place for place, got in enumerate(times) if got]
    sizes = [found.sizes[place] for place in here]
    middle = [round(median(times[place]), 4) for place in here]
    each = {
        "x": [size for place, size in zip(here, sizes, strict=True) for _ in times[place]],
        "y": [value for place in here for value in times[place]],
        "mode": "markers",
        "marker": {"color": GREY, "size": 6},
        "name": "each seed",
    }
    layout = {
        "xaxis": _sizes(found),
        "yaxis": {"title": {"text": f"seconds to accuracy {target:g}"}, "rangemode": "tozero"},
    }
    note = f"Never reached at batch {', '.join(missed)}." if missed else ""
    line = _spread(sizes, middle, [times[place] for place in here], ORANGE) | {"name": "median"}
    return {"data": [line, each], "layout": layout, "note": note}


def _sizes(found: BatchSizes) -> dict[str, Any]:
    return {"title": {"text": "batch size"}, "type": "log", "tickvals": found.sizes}


def _spread(
    x: list[int], middle: list[Any], values: list[list[float]], colour: str
) -> dict[str, Any]:
    return {
        "x": x,
        "y": middle,
        "mode": "lines+markers",
        "line": {"color": colour, "width": 2},
        "marker": {"size": 8},
        "error_y": {
            "type": "data",
            "symmetric": False,
            "array": [round(max(v) - m, 4) for v, m in zip(values, middle, strict=True)],
            "arrayminus": [round(m - min(v), 4) for v, m in zip(values, middle, strict=True)],
            "color": colour,
        },
    }
