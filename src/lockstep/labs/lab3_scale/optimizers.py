"""Train a large batch for few steps with SGD and four layer-wise optimizers."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, partial
from itertools import pairwise
from typing import Any

import numpy
import torch
from torch import Tensor
from torch.optim import SGD

from lockstep.labs.lab3_scale.model_stack import Stack
from lockstep.labs.lab3_scale.rate_grid import plain
from lockstep.labs.lab3_scale.stacked_optimizer import Maker, Members
from lockstep.labs.lab3_scale.training import Looks, Momentum, batches, train
from lockstep.labs.shared.apart import Report
from lockstep.labs.shared.digits import CLASSES, PIXELS, Samples, digits
from lockstep.scaling.optimizers.lamb import LAMB
from lockstep.scaling.optimizers.larc import LARC
from lockstep.scaling.optimizers.lars import LARS
from lockstep.scaling.optimizers.novograd import NovoGrad

SIZES = (PIXELS, 64, 64, 64, CLASSES)
MAKERS: dict[str, Maker] = {
    "SGD": partial(SGD, momentum=0.9),
    "LARS": partial(LARS, trust=0.02),
    "LARC": partial(LARC, trust=0.02),
    "LAMB": partial(LAMB, weight_decay=0.0),
    "NovoGrad": NovoGrad,
}
RATES = tuple(0.005 * 2**n for n in range(12))
BATCH, TIMES, EPOCHS, SEEDS = 256, 8, 5, 3
"""The small batch is BATCH / TIMES."""


@dataclass(frozen=True, kw_only=True)
class Optimizers:
    """Every optimizer at every rate, and the effect of single steps on the layers."""

    batch: int
    times: int
    """The large batch as a multiple of the small one."""
    rates: list[float]
    names: list[str]
    steps: list[int]
    """The steps of the evaluations."""
    accuracy: list[Any]
    """Accuracy by optimizer, evaluation, rate, seed; None if the scores were NaN."""
    small: list[Any]
    """The accuracy of SGD with the small batch after as many epochs, by rate and seed."""
    layers: list[str]
    trust: list[Any]
    """|w| / |g| by optimizer, step, layer, in one training run at the best rate."""
    moved: list[Any]
    """The length of a step relative to |w|, by optimizer, step, layer."""

    @cached_property
    def curves(self) -> numpy.ndarray:
        """`accuracy` as an array; None counts as 0."""
        return numpy.nan_to_num(numpy.array(self.accuracy, float), nan=0.0)

    def best(self, name: str) -> int:
        """Return the index of the rate with the best final accuracy of an optimizer."""
        return int(self.curves[self.names.index(name), -1].mean(1).argmax())

    def small_best(self) -> float:
        """Return SGD's best rate with the small batch."""
        ends = numpy.nan_to_num(numpy.array(self.small, float), nan=0.0).mean(1)
        return self.rates[int(ends.argmax())]

    def by_rule(self) -> int:
        """Return the index of the rate for the large batch by the linear rule."""
        wanted = self.small_best() * self.times
        return int(numpy.abs(numpy.log(numpy.array(self.rates) / wanted)).argmin())


def measure(report: Report, epochs: int = EPOCHS, seeds: int = SEEDS) -> Optimizers:
    """Train one stack per optimizer, then watch every step of one model per optimizer."""
    torch.set_num_threads(1)
    samples = digits()
    runs = len(MAKERS) + 1
    report(0.0, f"SGD at batch {BATCH // TIMES}")
    steps = epochs * -(-len(samples) // BATCH)
    small = _sweep(samples, None, BATCH // TIMES, epochs, seeds, [])
    accuracy = []
    for number, (name, make) in enumerate(MAKERS.items(), 1):
        report(number / runs, f"{name} at batch {BATCH}")
        looks = _sweep(samples, make, BATCH, epochs, seeds, list(range(0, steps + 1, 2)))
        accuracy.append(plain(looks.accuracy.view(-1, len(RATES), seeds), 3))
    found = Optimizers(
        batch=BATCH,
        times=TIMES,
        rates=[round(rate, 4) for rate in RATES],
        names=list(MAKERS),
        steps=looks.steps,
        accuracy=accuracy,
        small=plain(small.accuracy[-1].view(len(RATES), seeds), 3),
        layers=[f"{n}: {i} to {o}" for n, (i, o) in enumerate(pairwise(SIZES), 1)],
        trust=[],
        moved=[],
    )
    for name, make in MAKERS.items():
        trust, moved = _watched(samples, make, RATES[found.best(name)], steps)
        found.trust.append(plain(trust, 5))
        found.moved.append(plain(moved, 6))
    return found


def _sweep(
    samples: Samples, make: Maker | None, batch: int, epochs: int, seeds: int, looks: list[int]
) -> Looks:
    """Train at all rates, with the stack's SGD or with a layer-wise optimizer."""
    steps = epochs * -(-len(samples) // batch)
    stack = Stack(SIZES, [s for _ in RATES for s in range(seeds)], samples.inputs.device)
    rates = torch.tensor(RATES).repeat_interleave(seeds)
    update = Momentum(stack, rates, 0.9) if make is None else Members(stack, make, rates)
    return train(stack, samples, update, batch=batch, looks=[*looks, steps])


def _watched(samples: Samples, make: Maker, rate: float, steps: int) -> tuple[Tensor, Tensor]:
    """Return [steps, layers] of |w| / |g| before each step, and of the step relative to |w|."""
    stack = Stack(SIZES, [0], samples.inputs.device)
    update = Members(stack, make, torch.tensor([rate]))
    weights = stack.parameters[::2]
    trust, moved = [], []
    for step, batch in zip(range(steps), batches(samples, [0], BATCH), strict=False):
        gradients = stack.gradients(*batch)
        before = [w.detach().clone() for w in weights]
        lengths = torch.stack([w.norm() for w in before])
        trust.append(lengths / torch.stack([g.norm() for g in gradients[::2]]))
        update(step, gradients)
        ways = [(w.detach() - old).norm() for w, old in zip(weights, before, strict=True)]
        moved.append(torch.stack(ways) / lengths)
    return torch.stack(trust), torch.stack(moved)
