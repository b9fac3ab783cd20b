"""Measure a learning curve: the test error of a small model trained on more and more data.

All seeds of a size train at once, as one stack of matrices: for models this small, a step of six
costs little more than a step of one.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

import torch
from torch import Tensor
from torch.nn.functional import avg_pool2d, cross_entropy

from lockstep.data import Data, digits, fashion_mnist
from lockstep.data.images import FASHION_DEBIAN
from lockstep.labs.shared.apart import Report, separate

SEEDS = 6
WIDTH = 64
BATCH = 64
LEAST_STEPS, STEPS = 200, 16.0
"""Train for 16 times the square root of the samples: more steps hardly change any result."""
RATE = 6e-3
FASHION_SIZES = (50, 100, 200, 400, 800, 1600, 3200, 6400)
DIGITS_SIZES = (20, 28, 40, 57, 80, 113, 160, 226, 320, 453, 640, 905, 1280)


@dataclass(frozen=True, kw_only=True)
class Learning:
    """The test errors by number of training samples."""

    data: str
    model: str
    device: str
    sizes: list[int]
    errors: list[list[float]]
    """Errors by size and seed; each seed has its own samples and initial weights."""
    test_samples: int
    seconds: float

    @property
    def means(self) -> list[float]:
        """The mean error over the seeds, by size."""
        return [fmean(seeds) for seeds in self.errors]

    @property
    def spreads(self) -> list[float]:
        """The standard errors of the means."""
        # Seeds may agree by chance, so assume at least the effect of one test sample.
        least = 1.0 / self.test_samples
        return [max(stdev(seeds), least) / math.sqrt(len(seeds)) for seeds in self.errors]


@separate()
def measure(report: Report) -> Learning:
    """Train on Fashion-MNIST if Debian's package is installed, otherwise on the digits."""
    if FASHION_DEBIAN.is_dir():
        return curve(
            "Fashion-MNIST", fashion_mnist(FASHION_DEBIAN, test_samples=4000), FASHION_SIZES, report
        )
    return curve("digits", digits(), DIGITS_SIZES, report)


def curve(name: str, data: Data, sizes: Sequence[int], report: Report) -> Learning:
    """Measure the test errors of `SEEDS` models at every size."""
    torch.set_num_threads(1)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    (inputs, targets), test = (
        (_small(data, part.inputs).to(device), part.targets.to(device))
        for part in (data.train, data.test)
    )
    # The progress of a size counts in steps.
    work = [_steps(size) for size in sizes]
    began, errors = time.perf_counter(), []
    for place, size in enumerate(sizes):
        report(sum(work[:place]) / sum(work), f"{SEEDS} models on {size:,} samples each")
        draw = torch.Generator().manual_seed(size)
        chosen = torch.stack(
            [torch.randperm(len(inputs), generator=draw)[:size] for _ in range(SEEDS)]
        ).to(device)
        models = train(inputs[chosen], targets[chosen], _steps(size), draw)
        errors.append(_errors(models, *test))
    return Learning(
        data=name,
        model=f"perceptron {inputs.shape[1]}-{WIDTH}-10",
        device=device,
        sizes=list(sizes),
        errors=errors,
        test_samples=len(test[1]),
        seconds=round(time.perf_counter() - began, 2),
    )


def _small(data: Data, images: Tensor) -> Tensor:
    """Return the pixels as rows; halve the resolution of large images."""
    assert data.prepare is not None
    prepared = data.prepare(images)
    return (avg_pool2d(prepared, 2) if prepared.shape[-1] > 14 else prepared).flatten(1)


def _steps(size: int) -> int:
    return max(LEAST_STEPS, round(STEPS * math.sqrt(size)))


def train(inputs: Tensor, targets: Tensor, steps: int, draw: torch.Generator) -> list[Tensor]:
    """Train one model per entry of `inputs` [models, samples, pixels], the rate falling to 0."""
    count, size, pixels = inputs.shape
    shapes = ((pixels, WIDTH), (1, WIDTH), (WIDTH, 10), (1, 10))
    scales = (math.sqrt(2 / pixels), 0.0, math.sqrt(1 / WIDTH), 0.0)
    weights = [
        (scale * torch.randn(count, *shape, generator=draw)).to(inputs.device).requires_grad_()
        for shape, scale in zip(shapes, scales, strict=True)
    ]
    optimizer = torch.optim.Adam(weights, lr=RATE)
    rows = torch.arange(count, device=inputs.device)[:, None]
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = RATE * (1 - step / steps)
        batch = torch.randint(size, (count, min(BATCH, size)), generator=draw).to(inputs.device)
        outputs = _forward(weights, inputs[rows, batch])
        # The sum over models of each model's mean loss: the models do not affect each other.
        loss = cross_entropy(outputs.flatten(0, 1), targets[rows, batch].flatten()) * count
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return weights


def _forward(weights: Sequence[Tensor], inputs: Tensor) -> Tensor:
    first, first_bias, last, last_bias = weights
    hidden = torch.relu(torch.baddbmm(first_bias, inputs, first))
    return torch.baddbmm(last_bias, hidden, last)


@torch.no_grad()
def _errors(weights: Sequence[Tensor], inputs: Tensor, targets: Tensor) -> list[float]:
    """Return the share of test samples that each model gets wrong."""
    outputs = _forward(weights, inputs.expand(len(weights[0]), -1, -1))
    wrong: list[float] = (outputs.argmax(-1) != targets).double().mean(1).tolist()
    return [round(share, 6) for share in wrong]
