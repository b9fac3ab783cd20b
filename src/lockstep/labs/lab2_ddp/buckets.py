"""Record every backward pass of a small network on two replicas, for several bucket sizes."""

from __future__ import annotations

import gc
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from lockstep.labs.shared.apart import Report, separate

WIDTH, HIDDEN = 512, 8
BATCH = 64
"""Samples per replica."""
DEFAULT = 0.0
"""Stands for DDP's default: 25 MiB, and 1 MiB for the first bucket."""
CAPS = (1.0, 2.0, 4.0, 8.0, 25.0, DEFAULT)
"""The bucket sizes to record, in MiB."""
STEPS = 6
RATE = 0.05
LOOKED_AT = "head.bias"
"""The parameter whose gradients the page shows as numbers."""
LIMIT = 120.0


@dataclass(frozen=True, kw_only=True)
class Recorded:
    """The recorded backward passes."""

    device: str
    parameters: list[list[Any]]
    """[name, bytes] in the order of the model."""
    caps: list[float]
    runs: list[list[list[dict[str, Any]]]]
    """The record of a backward pass by cap, step and rank: see `engine/exchange/buckets.py`."""
    exchange: dict[str, Any]
    """One parameter in the first step, by rank: gradients before and after, and the weights."""

    @property
    def bytes(self) -> int:
        """The bytes of all gradients."""
        return sum(size for _, size in self.parameters)

    def notes(self, cap: float, step: int) -> list[dict[str, Any]]:
        """Return the records of one step, by rank."""
        return self.runs[self.caps.index(cap)][step]


def named(cap: float) -> str:
    """Format a bucket size."""
    return f"{cap:g} MiB" if cap else "default"


@separate(LIMIT)
def measure(
    report: Report, caps: Sequence[float] = CAPS, steps: int = STEPS, width: int = WIDTH
) -> Recorded:
    """Record some steps on two replicas with each bucket size."""
    import torch

    from lockstep.engine.group import Group
    from lockstep.processes.replicas import run_replicas
    from lockstep.world import World, gpu_count

    on_gpus = gpu_count() >= 2

    def replica(rank: int, store: str) -> Recorded:
        torch.set_num_threads(1)
        device = f"cuda:{rank}" if on_gpus else "cpu"
        group = Group(World(rank=rank, size=2, local_rank=rank, device=device), store=store)
        runs: list[Any] = []
        exchange: dict[str, Any] = {}
        try:
            for number, cap in enumerate(caps):
                if rank == 0:
                    report((number + 0.5) / len(caps), f"buckets: {named(cap)}")
                notes, looked = _run(group, cap, steps, width)
                runs.append([group.objects(one) for one in notes])
                exchange = exchange or _by_rank(group.objects(looked))
                gc.collect()
        finally:
            group.leave()
        sizes = [[n, 4 * p.numel()] for n, p in _network(width).named_parameters()]
        name = torch.cuda.get_device_name() if on_gpus else "cpu"
        return Recorded(
            device=name, parameters=sizes, caps=list(caps), runs=runs, exchange=exchange
        )

    report(0.05, "starting two replicas")
    found: Recorded = run_replicas(2, replica)
    return found


def _run(
    group: Any, cap: float, steps: int, width: int
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Return the records of all steps, and one parameter in the first step."""
    import torch
    from torch.nn import functional

    from lockstep.engine.exchange.buckets import Buckets
    from lockstep.labs.shared.digits import digits

    samples = digits(str(group.device))
    torch.manual_seed(0)
    watched = Buckets(_network(width).to(group.device), group, cap_mb=cap or None, keep=[LOOKED_AT])
    optimizer = torch.optim.SGD(watched.model.parameters(), lr=RATE)
    notes: list[dict[str, Any]] = []
    looked: dict[str, Any] = {}
    for step in range(steps):
        own = torch.arange(BATCH) + BATCH * (2 * step + group.world.rank)

        def loss(model: Any, own: Any = own) -> Any:
            return functional.cross_entropy(model(samples.inputs[own]), samples.targets[own])

        optimizer.zero_grad()
        notes.append(watched.step(loss))
        parameter = watched.model.module.get_parameter(LOOKED_AT)
        reduced = None if parameter.grad is None else parameter.grad.tolist()
        optimizer.step()
        looked = looked or {
            "before": watched.local[LOOKED_AT].tolist(),
            "after": reduced,
            "weights": parameter.tolist(),
        }
    return notes, looked


def _by_rank(found: list[dict[str, Any]]) -> dict[str, Any]:
    return {"name": LOOKED_AT, **{key: [one[key] for one in found] for key in found[0]}}


def _network(width: int) -> Any:
    import torch
    from torch import nn

    class Network(nn.Module):
        """A perceptron that defines its last layer first; its gradient still comes first."""

        def __init__(self) -> None:
            super().__init__()
            self.head = nn.Linear(width, 10)
            self.first = nn.Linear(64, width)
            for number in range(HIDDEN):
                self.add_module(f"hidden{number + 1}", nn.Linear(width, width))

        def forward(self, images: torch.Tensor) -> torch.Tensor:
            x = torch.relu(self.first(images))
            for number in range(HIDDEN):
                x = torch.relu(self.get_submodule(f"hidden{number + 1}")(x))
            return self.head(x)

    return Network()
