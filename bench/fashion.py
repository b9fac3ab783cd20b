"""Compare lockstep with the loop of a first course on Fashion-MNIST.

    python bench/fashion.py --epochs 8 --seeds 2 --save bench/results/h200-fashion.json
    python bench/fashion.py --sides fast --epochs 10 --seeds 3 --speed graph --save FILE

`lockstep` and `course` train the recipe `fashion-mnist` (WideResNet-16-10) with the same batch
size, rate, schedule, warmup, augmentation and epochs. lockstep chooses how to execute steps, in
bf16; the loop of the course is fp32 and eager, with a DataLoader, and draws different random
numbers. `fast` uses the network and optimizer of the recipe `cifar10-fast`. Each run is a new
process; its seconds count from its start, with all imports, compiling and tests. The sides
alternate.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from measuring import alternating, described, save, trained

GOALS = (0.90, 0.92, 0.93)


def main() -> None:
    """Run the sides with every seed; print accuracies and seconds."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--folder", type=Path, help="folder of the IDX files")
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--samples", type=int, help="train on this many samples only")
    parser.add_argument("--width", type=int, default=10, help="width of the WideResNet")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--speed", choices=["auto", "eager", "compile", "graph"], default="auto")
    parser.add_argument("--sides", default="lockstep,course", help="lockstep, course, fast")
    parser.add_argument("--side", choices=list(SIDES), help="train this side in this process")
    parser.add_argument("--seed", type=int, default=0, help="with --side")
    parser.add_argument("--save", type=Path)
    args = parser.parse_args()
    if args.side:
        for at, accuracy in SIDES[args.side](args):
            print(json.dumps({"at": at, "accuracy": accuracy}), flush=True)
        return
    sides = args.sides.split(",")
    found: dict[str, list[dict[str, Any]]] = {side: [] for side in sides}
    for seed in range(args.seeds):
        for side in alternating(sides, seed):
            run = measured([*sys.argv, "--side", side, "--seed", str(seed)])
            found[side].append({"seed": seed, **run})
            print(f"{side:10} seed {seed}  {line([run])}", flush=True)
    # Last: this imports torch, and no side may have a parent that uses the GPU.
    save(args.save, described(runs=found))
    goals = "".join(f"{f'to {goal:.2f}':>10}" for goal in GOALS)
    print(f"\n{'':10}         accuracy (lowest)   all{goals}")
    for side, runs in found.items():
        print(f"{side:10}         {line(runs)}")


def measured(command: list[str]) -> dict[str, Any]:
    """Run a process; return its accuracies and the seconds from its start to each."""
    began = time.time()
    ended = subprocess.run([sys.executable, *command], text=True, stdout=subprocess.PIPE)
    ended.check_returncode()
    total = time.time() - began
    tests = [json.loads(text) for text in ended.stdout.splitlines() if text.startswith('{"at"')]
    return {
        "accuracies": [test["accuracy"] for test in tests],
        "seconds": [test["at"] - began for test in tests],
        "total_seconds": total,
    }


def line(runs: list[dict[str, Any]]) -> str:
    """Format last accuracy and median seconds; a goal that a run missed shows as -."""
    last = [run["accuracies"][-1] for run in runs]
    total = statistics.median(run["total_seconds"] for run in runs)
    text = f"{statistics.mean(last):.4f} ({min(last):.4f}) {total:7.1f} s"
    for goal in GOALS:
        first = [
            next(
                (s for s, a in zip(run["seconds"], run["accuracies"], strict=True) if a >= goal),
                None,
            )
            for run in runs
        ]
        text += f"{'-':>10}" if None in first else f"{statistics.median(first):8.1f} s"
    return text


def fitted(args: argparse.Namespace) -> Any:
    """Return the recipe of the side with the options of the command."""
    from lockstep import data, models
    from lockstep.engine.recipe.builtin.cifar10_fast import CIFAR10_FAST
    from lockstep.engine.recipe.builtin.fashion_mnist import FASHION_MNIST

    load = partial(data.fashion_mnist, folder=args.folder, samples=args.samples)
    if args.side == "fast":
        return replace(
            CIFAR10_FAST,
            model=partial(models.quicknet, channels=1, whiten=False),
            data=load,
            shards=1,
            epochs=args.epochs,
            seed=args.seed,
        )
    return replace(
        FASHION_MNIST,
        model=partial(models.wideresnet, depth=16, width=args.width, channels=1, dropout=0.1),
        data=load,
        precision="bf16",
        # All steps of an epoch but the last have one shape, as in the loop of the course.
        shards=1,
        epochs=args.epochs,
        seed=args.seed,
    )


def by_lockstep(args: argparse.Namespace) -> list[tuple[float, float]]:
    """Train with the engine; return time and accuracy of each test."""
    summary, records = trained(fitted(args), args.device, speed=args.speed)
    print(summary["speed"], summary["time"], file=sys.stderr)
    return [
        (summary["began_at"] + record["seconds"], record["accuracy"])
        for record in records
        if record["kind"] == "test"
    ]


def by_course(args: argparse.Namespace) -> list[tuple[float, float]]:
    """Train with a plain loop; return time and accuracy of each test."""
    import torch
    from torch import nn
    from torch.utils.data import DataLoader, TensorDataset

    from lockstep.scaling.rates.schedules import cosine

    recipe = fitted(args)
    torch.manual_seed(args.seed)
    device = torch.device(args.device)
    found = recipe.data()
    everything = torch.arange(len(found.train)), torch.arange(len(found.test))
    train, test = (
        TensorDataset(*part.take(which))
        for part, which in zip((found.train, found.test), everything, strict=True)
    )
    loader = DataLoader(train, batch_size=recipe.global_batch, shuffle=True)
    model = recipe.model().to(device)
    optimizer = recipe.optimizer(model.parameters(), lr=recipe.learning_rate)
    steps, warmup = args.epochs * len(loader), recipe.warmup * len(loader)

    def rate(step: int) -> float:
        if step < warmup:
            return (step + 1) / warmup
        return float(cosine((step - warmup) / (steps - warmup)))

    plan = torch.optim.lr_scheduler.LambdaLR(optimizer, rate)
    tests = []
    for _ in range(args.epochs):
        model.train()
        for images, labels in loader:
            images, labels = found.prepare(images.to(device)), labels.to(device)
            images = shifted_and_flipped(images, 2)
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(images), labels).backward()
            optimizer.step()
            plan.step()
        model.eval()
        right = 0
        with torch.no_grad():
            for images, labels in DataLoader(test, batch_size=1000):
                images = found.prepare(images.to(device))
                right += (model(images).argmax(1) == labels.to(device)).sum().item()
        tests.append((time.time(), right / len(test)))
    return tests


def shifted_and_flipped(images: Any, padding: int) -> Any:
    """Move each image by up to `padding` pixels, and mirror half of them."""
    import torch

    count, _, height, width = images.shape
    padded = torch.nn.functional.pad(images, (padding,) * 4)
    top, left = torch.randint(2 * padding + 1, (2, count, 1), device=images.device)
    rows = top + torch.arange(height, device=images.device)
    columns = left + torch.arange(width, device=images.device)
    mirrored = torch.rand(count, 1, device=images.device) < 0.5
    columns = torch.where(mirrored, columns.flip(1), columns)
    batch = torch.arange(count, device=images.device)[:, None, None]
    return padded[batch, :, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2).contiguous()


SIDES = {"lockstep": by_lockstep, "course": by_course, "fast": by_lockstep}

if __name__ == "__main__":
    main()
