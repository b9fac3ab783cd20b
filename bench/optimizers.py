"""Compare the time of an optimizer's step with the optimizer of torch that it builds upon.

    python bench/optimizers.py --rounds 61 --save bench/results/optimizers.json

Both sides alternate on the same gradients, with the same weight decay, in torch's foreach form.
The order reverses after each round; ratios are taken within a round. `--device cuda` measures on a
GPU; `--recorded` replays the steps as CUDA graphs there, as lockstep does.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from functools import partial
from inspect import signature
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.optim import SGD, AdamW, Optimizer

from lockstep import models
from lockstep.optimizers import LAMB, LARC, LARS, NovoGrad
from measuring import alternating, described, ratios, save, spread

MODELS: dict[str, Callable[[], nn.Module]] = {
    "WideResNet-16-2": partial(models.wideresnet, 16, 2),
    "GPT 6 x 384": partial(models.gpt, 6, 384, length=256),
}
SGD_SIDE = partial(SGD, momentum=0.9, foreach=True)
ADAMW_SIDE = partial(AdamW, foreach=True)
PAIRS: dict[str, tuple[Callable[..., Optimizer], Callable[..., Optimizer]]] = {
    "LARS": (LARS, SGD_SIDE),
    "LARC": (LARC, SGD_SIDE),
    "LAMB": (LAMB, ADAMW_SIDE),
    "NovoGrad": (NovoGrad, ADAMW_SIDE),
}
DECAYS = (0.0, 1e-4)
SECONDS = 0.02
"""Length of a turn: short, so that other load on the machine falls on both sides."""
LIMIT = 1.3
"""Largest accepted ratio to the time of torch's step."""


def ready(
    build: Callable[..., Optimizer],
    model: Callable[[], nn.Module],
    decay: float,
    device: str,
    recorded: bool,
) -> Any:
    """Build a model and its optimizer, take the first step, and return the function of a step."""
    torch.manual_seed(0)
    net = model().to(device)
    for p in net.parameters():
        p.grad = 1e-3 * torch.randn_like(p)
    # The rate is so small that no number of updates changes the weights.
    more = {"capturable": True} if recorded and "capturable" in signature(build).parameters else {}
    optimizer = build(net.parameters(), lr=1e-12, weight_decay=decay, **more)
    optimizer.step()
    if not recorded:
        return optimizer.step
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        optimizer.step()
    return graph.replay


def turn(step: Callable[[], Any], repeats: int) -> float:
    """Return the seconds of one step."""
    wait = torch.cuda.synchronize if torch.cuda.is_initialized() else lambda: None
    wait()
    began = time.perf_counter()
    for _ in range(repeats):
        step()
    wait()
    return (time.perf_counter() - began) / repeats


def measure(
    name: str,
    model: Callable[[], nn.Module],
    decay: float,
    rounds: int,
    device: str,
    recorded: bool,
) -> Any:
    """Return the seconds of each side by round."""
    sides = {
        side: ready(build, model, decay, device, recorded)
        for side, build in zip(("ours", "torch"), PAIRS[name], strict=True)
    }
    repeats = max(3, int(SECONDS / turn(sides["torch"], 3)))
    times: dict[str, list[float]] = {side: [] for side in sides}
    for number in range(rounds):
        for side in alternating(sides, number):
            times[side].append(turn(sides[side], repeats))
    return times


def main() -> None:
    """Measure, print and save."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=61)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--recorded", action="store_true", help="replay CUDA graphs")
    parser.add_argument("--save", type=Path)
    args = parser.parse_args()
    torch.set_num_threads(1)
    document = described()
    for size, model in MODELS.items():
        parameters = list(model().parameters())
        print(f"{size}: {len(parameters)} tensors, {sum(p.numel() for p in parameters):,} weights")
        for name in PAIRS:
            for decay in DECAYS:
                times = measure(name, model, decay, args.rounds, args.device, args.recorded)
                document.setdefault(size, {})[f"{name}, weight decay {decay:g}"] = times
                found = ratios(times["ours"], times["torch"])
                ms = {side: 1e3 * statistics.median(seconds) for side, seconds in times.items()}
                print(
                    f"  {name:8} weight decay {decay:6g} {ms['ours']:7.2f} ms   "
                    f"{PAIRS[name][1].func.__name__:5} {ms['torch']:7.2f} ms   "
                    f"{spread(found, unit='x')}"
                    f"{'' if statistics.median(found) <= LIMIT else f'   above {LIMIT}x'}"
                )
    save(args.save, document)


if __name__ == "__main__":
    main()
