"""The same training as a recipe and as a `Loop` program, in turns: samples per second.

python bench/own_loop.py --replicas 1,2 --rounds 5 --out bench/results/own-loop.json
python bench/own_loop.py --device cuda --rounds 5 --out bench/results/h200-own-loop.json
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from lockstep import models
from lockstep.cluster.launch import launch
from lockstep.cluster.program import Program, launch_program
from lockstep.console import Console
from lockstep.data import Data, Tensors
from lockstep.engine.program.receipts import Receipts
from lockstep.engine.recipe.job import Job
from lockstep.engine.recipe.recipe import Recipe

WORK = {
    "mlp": ("mlp", {}, 64, (784,)),
    "wideresnet": ("wideresnet", {"depth": 16, "width": 2, "channels": 3}, 64, (3, 32, 32)),
    "resnet50": ("resnet50", {}, 256, (3, 224, 224)),
    "wideresnet-16-10": ("wideresnet", {"depth": 16, "width": 10, "channels": 3}, 512, (3, 32, 32)),
}
PROGRAM = """
import torch
from torch.nn import functional as F
import lockstep
from lockstep.data import Tensors
from own_loop import data, model
with lockstep.Loop(global_batch={batch}, shards=4, exact={exact}, checkpoint_every=0,
                   check_every={check}, speed="{speed}", precision="{precision}") as loop:
    net = loop.model(model("{name}"))
    sgd = loop.optimizer(torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9, fused=True))
    batches = loop.batches(data("{name}", {steps}).train)
    def loss(batch):
        x, y = batch
        return F.cross_entropy(net(x), y, reduction="sum"), len(y)
    for epoch in loop.epochs(1):
        for batch in batches:
            loop.step(batch, loss, sgd)
"""


def model(name: str) -> nn.Module:
    """Build the model of some work."""
    kind, arguments, _, _ = WORK[name]
    return getattr(models, kind)(**arguments)


def data(name: str, steps: int) -> Data:
    """Make random samples for this number of steps, and few to test on."""
    _, _, batch, shape = WORK[name]
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(steps * batch, *shape, generator=generator)
    targets = torch.randint(0, 10, (steps * batch,), generator=generator)
    return Data(train=Tensors(inputs, targets), test=Tensors(inputs[:8], targets[:8]))


def plain_loss(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Return one loss per sample."""
    return nn.functional.cross_entropy(outputs, targets, reduction="none")


def right(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Return 1 where the best score is right."""
    return (outputs.argmax(1) == targets).float()


def by_recipe(
    name: str,
    steps: int,
    replicas: int,
    exact: bool,
    device: str,
    speed: str,
    precision: str,
    out: Path,
) -> float:
    """Train as a recipe; return samples per second."""
    recipe = Recipe(
        name=name,
        model=partial(model, name),
        data=partial(data, name, steps),
        loss=plain_loss,
        metrics={"accuracy": right},
        optimizer=partial(torch.optim.SGD, momentum=0.9),
        learning_rate=0.01,
        global_batch=WORK[name][2],
        epochs=1,
    )
    job = Job(
        recipe=replace(recipe, precision=precision),
        out=out,
        replicas=replicas,
        exact=exact,
        speed=speed,
        checkpoint_every=0,
    )
    return launch(job, device=device, console=Console(quiet=True))["samples_per_second"]


def by_loop(
    name: str,
    steps: int,
    replicas: int,
    exact: bool,
    device: str,
    speed: str,
    precision: str,
    out: Path,
    check: int = 256,
) -> float:
    """Train as a program; return samples per second."""
    path = out.with_suffix(".py")
    text = PROGRAM.format(
        batch=WORK[name][2],
        exact=exact,
        name=name,
        steps=steps,
        check=check,
        speed=speed,
        precision=precision,
    )
    path.write_text(text)
    program = Program(path=path, out=out)
    run = launch_program(program, replicas=replicas, device=device, console=Console(quiet=True))
    return run["samples_per_second"]


def without_checks(*arguments: Any) -> float:
    """Train as a program without receipts and without computing anything again."""
    plain = Receipts.note
    Receipts.note = lambda *_: None  # type: ignore[method-assign]
    try:
        return by_loop(*arguments, check=0)
    finally:
        Receipts.note = plain  # type: ignore[method-assign]


def main() -> None:
    """Measure in turns and write medians, ratios and their spread."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", default="mlp,wideresnet")
    parser.add_argument("--steps", default="600,60")
    parser.add_argument("--replicas", default="1")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--speed", default="eager", choices=("eager", "compile", "graph"))
    parser.add_argument("--precision", default="fp32")
    parser.add_argument("--sides", default="recipe,loop,loop without checks")
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    known = {"recipe": by_recipe, "loop": by_loop, "loop without checks": without_checks}
    sides = {side: known[side] for side in given.sides.split(",")}
    found = []
    for name, steps in zip(given.work.split(","), map(int, given.steps.split(",")), strict=True):
        for replicas in map(int, given.replicas.split(",")):
            for exact in (False, True) if given.speed != "compile" else (False,):
                rates: dict[str, list[float]] = {side: [] for side in sides}
                for number in range(given.rounds):
                    # In another order every time: what a round leaves behind slows nobody twice.
                    for side, measure in sorted(sides.items(), reverse=number % 2 == 1):
                        with tempfile.TemporaryDirectory() as folder:
                            out = Path(folder) / f"run{number}"
                            rate = measure(
                                name,
                                steps,
                                replicas,
                                exact,
                                given.device,
                                given.speed,
                                given.precision,
                                out,
                            )
                            rates[side].append(rate)
                row: dict[str, Any] = {"work": name, "replicas": replicas, "exact": exact}
                row |= {"speed": given.speed, "precision": given.precision}
                row["samples_per_second"] = {s: statistics.median(r) for s, r in rates.items()}
                for one, other in (("loop", "recipe"), ("loop", "loop without checks")):
                    if other not in sides:
                        continue
                    ratios = [a / b for a, b in zip(rates[one], rates[other], strict=True)]
                    row[f"{one} / {other}"] = [
                        round(v, 4) for v in (statistics.median(ratios), min(ratios), max(ratios))
                    ]
                found.append(row)
                print(row, flush=True)
    given.out.write_text(json.dumps({"torch": torch.__version__, "rows": found}, indent=2) + "\n")


if __name__ == "__main__":
    main()
