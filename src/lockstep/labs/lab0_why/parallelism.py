"""Train one model on one process, and with data and model parallelism on two: bytes, memory, time.

The lab counts bytes where a process hands them over for sending, and memory tensor by tensor.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import chain
from statistics import median
from typing import Any

import torch
from torch import Tensor, nn

from lockstep import models
from lockstep.engine.exchange.link import finish
from lockstep.engine.exchange.traffic import Traffic, replicated
from lockstep.engine.group import Group
from lockstep.engine.pipeline import Pipeline
from lockstep.engine.step.metrics import cross_entropy
from lockstep.labs.lab0_why.memory import ActivationBytes, state_bytes
from lockstep.labs.shared.apart import Report, separate
from lockstep.labs.shared.digits import CLASSES, PIXELS, digits
from lockstep.processes.replicas import run_replicas
from lockstep.world import World, gpu_count

HIDDEN = 5
WIDTHS, BATCHES, MICRO_BATCHES = (128, 512), (64, 1024), 4
PROCESSES = 2
STEPS, COUNTED = 7, 1
"""The number of steps, and the step that counts activations; later steps are timed."""
ONE, DATA, MODEL = "one process", "data parallel", "model parallel"


@dataclass(frozen=True, kw_only=True)
class Ways:
    """The measurements of each way, for each width and batch."""

    device: str
    processes: int
    micro_batches: int
    rows: list[dict[str, Any]]
    """`width`, `batch`, `way`; by process, `messages` and `sent` bytes per step and the bytes of
    `parameters`, `gradients`, `optimizer`, `activations`; `seconds`, the slowest process's step;
    `differs`, the difference of the weights from those of one process, relative to the largest."""

    def row(self, width: int, batch: int, way: str) -> dict[str, Any]:
        """Return the row of this width, batch and way."""
        return next(
            r for r in self.rows if (r["width"], r["batch"], r["way"]) == (width, batch, way)
        )


def perceptron(width: int) -> nn.Sequential:
    """Build 64 pixels, five hidden layers, ten classes, always with the same initial weights."""
    torch.manual_seed(0)
    net = models.mlp((PIXELS, *[width] * HIDDEN, CLASSES))
    assert isinstance(net, nn.Sequential)
    # Keep only layers that compute: the pixels already come as rows.
    return nn.Sequential(*(m for m in net if isinstance(m, nn.Linear | nn.ReLU)))


@separate()
def measure(report: Report) -> Ways:
    """Train on one process and in both ways on two, for every width and batch."""
    on_gpus = gpu_count() >= PROCESSES
    settings = [(width, batch) for width in WIDTHS for batch in BATCHES]
    plans: list[tuple[str, int, Callable[..., Any]]] = [
        (ONE, 1, _replicated),
        (DATA, PROCESSES, _replicated),
        (MODEL, PROCESSES, _in_stages),
    ]
    rows: list[dict[str, Any]] = []
    first: list[dict[str, Tensor]] = []
    for place, (way, processes, train) in enumerate(plans):
        report(place / len(plans), way)

        def work(rank: int, store: str, size: int = processes, by: Any = train) -> Any:
            torch.set_num_threads(1)
            place = f"cuda:{rank}" if on_gpus else "cpu"
            group = Group(World(rank=rank, size=size, local_rank=rank, device=place), store=store)
            found = [by(group, width, batch) for width, batch in settings]
            every = group.objects([row for row, _ in found])
            weights = [w for _, w in found]
            del found
            group.leave()
            return every, weights

        every, weights = run_replicas(processes, work)
        first = first or weights
        for at, (width, batch) in enumerate(settings):
            of_all = [process[at] for process in every]
            row: dict[str, Any] = {"width": width, "batch": batch, "way": way}
            row |= {name: [one[name] for one in of_all] for name in of_all[0]}
            # The slowest process decides how long a step takes.
            row["seconds"] = max(row["seconds"])
            row["differs"] = _difference(weights[at], first[at])
            rows.append(row)
    device = "cuda" if on_gpus else "cpu"
    return Ways(device=device, processes=PROCESSES, micro_batches=MICRO_BATCHES, rows=rows)


def _batch(batch: int, device: torch.device) -> tuple[Tensor, Tensor]:
    samples = digits("cpu")
    picked = torch.arange(batch) % len(samples)
    return samples.inputs[picked].to(device), samples.targets[picked].to(device)


def _replicated(group: Group, width: int, batch: int) -> tuple[dict[str, Any], dict[str, Tensor]]:
    traffic, rank, size = Traffic(), group.world.rank, group.world.size
    net = perceptron(width).to(group.device)
    model = replicated(net, group, traffic)
    mine = slice(rank * batch // size, (rank + 1) * batch // size)
    # Copy: a slice would keep the memory of all samples.
    inputs, targets = (part[mine].clone() for part in _batch(batch, group.device))

    def step() -> None:
        traffic.begin()
        # This is the mean over one part; DDP takes the mean over the equal parts.
        cross_entropy(model(inputs), targets).mean().backward()

    found = _timed(group, net, traffic, step)
    # A ring sends this share of its input.
    found["sent"] = found["sent"] * 2 * (size - 1) // size
    return found, {name: t.detach().cpu() for name, t in net.state_dict().items()}


def _in_stages(group: Group, width: int, batch: int) -> tuple[dict[str, Any], dict[str, Tensor]]:
    pipeline = Pipeline(perceptron(width), group, loss=cross_entropy, micro_batches=MICRO_BATCHES)
    inputs, targets = _batch(batch, group.device)

    def step() -> None:
        pipeline.step(inputs, targets)

    found = _timed(group, pipeline.module, pipeline.traffic, step)
    return found, pipeline.weights()


def _timed(
    group: Group, module: nn.Module, traffic: Traffic, step: Callable[[], None]
) -> dict[str, Any]:
    """Take a few steps, and return their bytes, memory and time."""
    optimizer = torch.optim.SGD(module.parameters(), lr=0.05, momentum=0.9)
    kept, seconds = ActivationBytes(module.parameters()), []
    for number in range(STEPS):
        optimizer.zero_grad()
        # Start together, or the step would also measure waiting for a late process.
        group.objects(None)
        finish(group)
        began = time.perf_counter()
        # Counting costs time, and the first step allocates: time neither.
        with kept.watching() if number == COUNTED else nullcontext():
            step()
        optimizer.step()
        finish(group)
        seconds.append(time.perf_counter() - began)
    return {
        "messages": traffic.messages,
        "sent": traffic.bytes,
        **state_bytes(module, optimizer),
        "activations": kept.peak,
        "seconds": round(median(seconds[COUNTED + 1 :]), 6),
    }


def _difference(weights: dict[str, Tensor], others: dict[str, Tensor]) -> float:
    assert weights.keys() == others.keys()
    largest = max(float(t.abs().max()) for t in chain(weights.values(), others.values()))
    return max(float((weights[n] - others[n]).abs().max()) for n in weights) / largest
