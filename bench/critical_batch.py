"""Measure the critical batch by a sweep, and predict it from the noise scale of one training.

    python bench/critical_batch.py digits fashion-mnist --save bench/results/critical_batch.json

The sweep trains at many batch sizes, each with the best of many learning rates, and counts the
steps until the loss over the training data has reached the target; a fit gives the critical batch.
The prediction watches the noise scale of a single training at a single batch size.
"""

from __future__ import annotations

import argparse
import math
import statistics
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from lockstep import data, models
from lockstep.scaling.batch.critical import fitted, from_noise
from lockstep.scaling.noise import NoiseScale, ShardNoise, StepNoise
from measuring import described, save, spread

RATES = [0.01 * 2**n for n in range(10)]
LOOKS = 1.08
"""Factor between the steps of two evaluations of the loss."""


@dataclass(frozen=True)
class Problem:
    """A model, its data, and the loss that it should reach."""

    name: str
    model: Any
    target: float
    """Mean loss over the training data."""
    batches: list[int]
    watched: int
    """Batch size of the training that the prediction uses."""


PROBLEMS = {
    "digits": Problem(
        "digits",
        partial(models.mlp, (64, 32, 10)),
        0.25,
        [4, 8, 16, 32, 64, 128, 256, 512, 1024],
        64,
    ),
    "fashion-mnist": Problem(
        "fashion-mnist",
        partial(models.mlp, (784, 64, 10)),
        0.5,
        [8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096],
        64,
    ),
}


def loaded(name: str, samples: int) -> tuple[Tensor, Tensor]:
    """Return the prepared training inputs and targets."""
    whole = {"digits": data.digits, "fashion-mnist": data.fashion_mnist}[name]()
    assert whole.prepare is not None
    chosen = torch.arange(min(samples, len(whole.train)))
    inputs, targets = whole.train.take(chosen)
    return whole.prepare(inputs), targets


class Training:
    """A training with plain SGD and a new order of the samples in every epoch."""

    def __init__(
        self, problem: Problem, samples: tuple[Tensor, Tensor], batch: int, seed: int
    ) -> None:
        self.problem, self.batch = problem, batch
        self.inputs, self.targets = samples
        self.generator = torch.Generator().manual_seed(seed)
        torch.manual_seed(seed)
        self.model: nn.Module = problem.model()
        self.parameters = list(self.model.parameters())
        self.order = torch.empty(0, dtype=torch.int64)

    def draw(self) -> Tensor:
        """Return the indices of the next samples."""
        while len(self.order) < self.batch:
            fresh = torch.randperm(len(self.targets), generator=self.generator)
            self.order = torch.cat([self.order, fresh])
        chosen, self.order = self.order[: self.batch], self.order[self.batch :]
        return chosen

    def backward(self, chosen: Tensor, weight: float = 1.0) -> None:
        """Add the gradient of the chosen samples."""
        (cross_entropy(self.model(self.inputs[chosen]), self.targets[chosen]) * weight).backward()

    @torch.no_grad()
    def update(self, rate: float) -> None:
        """Take a step of SGD."""
        for p in self.parameters:
            assert p.grad is not None
            p.sub_(p.grad, alpha=rate)
            p.grad = None

    @torch.no_grad()
    def loss(self) -> float:
        """Return the loss over all training data."""
        return cross_entropy(self.model(self.inputs), self.targets).item()


def steps_to_target(training: Training, rate: float, most: int) -> float:
    """Return the interpolated number of steps to the target; infinite if more than `most`."""
    before, step, look = (0, training.loss()), 0, 1.0
    target = training.problem.target
    while step < most:
        training.backward(training.draw())
        training.update(rate)
        step += 1
        if step < look:
            continue
        look = max(step + 1, step * LOOKS)
        now = training.loss()
        if not math.isfinite(now):
            return math.inf
        if now <= target:
            share = (math.log(before[1]) - math.log(target)) / (math.log(before[1]) - math.log(now))
            return before[0] + share * (step - before[0])
        before = (step, now)
    return math.inf


def sweep(problem: Problem, samples: tuple[Tensor, Tensor], seeds: int) -> dict[str, Any]:
    """Return the steps to the target at the best rate of each batch, and the fit."""
    rows: list[dict[str, Any]] = []
    for batch in problem.batches:
        best: tuple[float, float, list[float]] = (math.inf, 0.0, [])
        for rate in RATES:
            # A rate that takes twice the steps of the best one so far will not win.
            most = int(min(2 * best[0], 200_000 / batch + 20_000))
            found = [
                steps_to_target(Training(problem, samples, batch, seed), rate, most)
                for seed in range(seeds)
            ]
            middle = statistics.fmean(found)
            if middle < best[0]:
                best = (middle, rate, found)
        rows.append({"batch": batch, "steps": best[0], "rate": best[1], "seeds": best[2]})
        print(
            f"{problem.name:14} batch {batch:5}  {best[0]:8.1f} steps at rate {best[1]:g}",
            flush=True,
        )
    fit = fitted([r["batch"] for r in rows], [r["steps"] for r in rows])
    return {"rows": rows, "fit": fit._asdict()}


def watched(
    problem: Problem, samples: tuple[Tensor, Tensor], rate: float, seeds: int
) -> dict[str, Any]:
    """Return the noise scale along single trainings, and the critical batches it predicts."""
    result: dict[str, Any] = {"batch": problem.watched, "rate": rate}
    for name in ("shards", "steps"):
        predictions = []
        curves = []
        for seed in range(seeds):
            curve = noise_along(problem, samples, rate, seed, name)
            curves.append(curve)
            predictions.append(from_noise(curve, problem.watched).critical_batch)
        result[name] = {"critical_batch": predictions, "curves": curves}
    return result


def noise_along(
    problem: Problem, samples: tuple[Tensor, Tensor], rate: float, seed: int, source: str
) -> list[float]:
    """Return the smoothed noise scale after each step until the target."""
    training = Training(problem, samples, problem.watched, seed)
    length = int(steps_to_target(Training(problem, samples, problem.watched, seed), rate, 100_000))
    noise = NoiseScale(memory=max(10.0, length / 10))
    shards = ShardNoise(training.parameters, problem.watched, 4, noise)
    steps = StepNoise(training.parameters, problem.watched, noise)
    curve: list[float] = []
    for _ in range(length):
        chosen = training.draw()
        if source == "shards":
            for number, part in enumerate(chosen.chunk(4)):
                training.backward(part, 1 / 4)
                shards.after(number)
            shards.hand_over()
        else:
            training.backward(chosen)
            steps.step()
            steps.hand_over()
        training.update(rate)
        curve.append(noise.estimate().value)
    usable = [value for value in curve if math.isfinite(value)]
    # The first steps have no estimate yet: use the first one.
    return [value if math.isfinite(value) else usable[0] for value in curve]


def main() -> None:
    """Measure and predict for each problem, print and save."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("problems", nargs="*", default=list(PROBLEMS))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument(
        "--samples", type=int, default=10_000, help="largest number of training samples"
    )
    parser.add_argument("--save", type=Path)
    args = parser.parse_args()
    torch.set_num_threads(1)
    document = described()
    for name in args.problems:
        began = time.perf_counter()
        problem, samples = PROBLEMS[name], loaded(name, args.samples)
        measured = sweep(problem, samples, args.seeds)
        rate = next(r["rate"] for r in measured["rows"] if r["batch"] == problem.watched)
        predicted = watched(problem, samples, rate, args.seeds)
        document[name] = {"target": problem.target, "sweep": measured, "noise": predicted}
        fit = measured["fit"]["critical_batch"]
        print(f"{name}: measured {fit:.0f} samples; {time.perf_counter() - began:.0f} s")
        for source in ("shards", "steps"):
            values = predicted[source]["critical_batch"]
            share = statistics.median(values) / fit
            print(f"{name}: by noise of {source} {spread(values, '.0f')}, {share:.2f} of it")
    save(args.save, document)


if __name__ == "__main__":
    main()
