"""Train a large batch for few steps with SGD and four layer-wise optimizers, and draw the runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import pairwise
from typing import Any

import numpy
import torch
from torch import Tensor
from torch.optim import SGD

from lockstep.labs.lab3_scale.model_stack import Looks, Momentum, Stack, batches, train
from lockstep.labs.lab3_scale.rate_grid import plain
from lockstep.labs.shared.apart import Report
from lockstep.labs.shared.digits import CLASSES, PIXELS, Samples, digits
from lockstep.labs.shared.drawing import COLOURS, Figure, axes, band, line, ticks, tidy
from lockstep.report.page import GREY
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
# Not |w|: a vertical bar ends the cell of a table.
_W, _G, _U = (rf"\lVert {name}\rVert" for name in "wgu")
FORMULAS = {
    "SGD": r"\text{rate}",
    "LARS": rf"\text{{rate}}\cdot\text{{trust}}\cdot\frac{{{_W}}}{{{_G}}}",
    "LARC": rf"\min\left(\text{{rate}},\ \text{{trust}}\cdot\frac{{{_W}}}{{{_G}}}\right)",
    "LAMB": rf"\text{{rate}}\cdot\frac{{{_W}}}{{{_U}}},\quad u=\frac{{m}}{{\sqrt{{v}}+\epsilon}}",
    "NovoGrad": rf"\frac{{\text{{rate}}}}{{\sqrt{{v}}}},\quad v=\text{{mean of }}{_G}^2",
}
"""The factor of a layer's gradient (for LAMB, of Adam's step u)."""
Maker = Callable[..., torch.optim.Optimizer]


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


def table(found: Optimizers) -> tuple[list[str], list[list[str]]]:
    """Return columns and rows: the end of each optimizer at the rule's rate and its best."""
    ends, by_rule = found.curves[:, -1].mean(2), found.by_rule()
    rows = [
        [name, f"{own[by_rule]:.1%}", f"{found.rates[found.best(name)]:g}", f"{own.max():.1%}"]
        for name, own in zip(found.names, ends, strict=True)
    ]
    at_rule = f"at rate {found.rates[by_rule]:g}"
    return ["optimizer", at_rule, "best rate", "at its best rate"], rows


def figure(found: Optimizers, *, rate: float, own: bool) -> Figure:
    """Draw the accuracy step by step: all at the same rate, or each at its `own` best rate."""
    data, said = [], []
    for place, name in enumerate(found.names):
        at = found.best(name) if own else found.rates.index(rate)
        seeds = found.curves[place, :, at]
        label = f"{name} {found.rates[at]:g}"
        data += [
            band(label, found.steps, seeds.min(1), seeds.max(1), COLOURS[place]),
            line(label, found.steps, seeds.mean(1), COLOURS[place]),
        ]
        said.append(f"{name} {seeds[-1].mean():.1%}")
    layout = axes(
        f"optimizer steps of {found.batch} samples", "test accuracy", y_axis={"range": [0, 1.02]}
    )
    rule = found.rates[found.by_rule()]
    note = (
        f"At the end: {', '.join(said)}.\n"
        f"SGD is best at {found.small_best():g} with a batch of {found.batch // found.times}; "
        f"times {found.times} by the linear rule, that is {rule:g}."
    )
    return {"data": data, "layout": layout, "note": note}


def ends(found: Optimizers, *, rate: float) -> Figure:
    """Draw the final accuracy by rate."""
    data = []
    for place, name in enumerate(found.names):
        means = found.curves[place, -1].mean(1)
        curve = line(name, found.rates, means, COLOURS[place])
        data.append(curve | {"mode": "lines+markers", "marker": {"size": 6}})
    data.append(line("chosen rate", [rate, rate], [0, 1], GREY, dash="dot", width=1.5))
    layout = axes(
        "learning rate",
        f"test accuracy after {found.steps[-1]} steps",
        x_axis=ticks((0.01, 0.1, 1, 10)),
        y_axis={"range": [0, 1.02]},
    )
    return {"data": data, "layout": layout}


def layers(found: Optimizers, *, step: int, what: str) -> Figure:
    """Draw step number `step` (from 1) by layer: its length or |w| / |g|, as `what` selects."""
    title, values, unit = {
        "step": ("step, % of |w|", found.moved, 100),
        "ratio": ("|w| / |g|", found.trust, 1),
    }[what]
    data, spans = [], []
    for place, name in enumerate(found.names):
        own = values[place][step - 1]
        bars = {"type": "bar", "name": name, "marker": {"color": COLOURS[place]}}
        lengths = tidy(None if value is None else unit * value for value in own)
        data.append(bars | {"x": found.layers, "y": lengths})
        known = [value for value in own if value]
        if known:
            spans.append(f"{name} {max(known) / min(known):.2g}x")
    scale = ticks((0.1, 0.3, 1, 3, 10, 30, 100, 300, 1000))
    layout = axes("layer", title, y_axis=scale, barmode="group", bargap=0.25)
    note = f"Step {step}, each optimizer at its best rate. Largest over smallest: "
    return {"data": data, "layout": layout, "note": note + ", ".join(spans) + "."}


class Members:
    """A torch optimizer over slices of the stack, which share its memory.

    The norm of a stacked weight would mix all models, so every layer of every model must be a
    separate parameter. A single optimizer still updates them all in few calls.
    """

    def __init__(self, stack: Stack, make: Maker, rates: Tensor) -> None:
        """`rates` has one rate per model; `make` gets the groups of parameters."""
        self.slices = [[_slice(w, m) for w in stack.trained()] for m in range(len(stack))]
        groups: list[dict[str, Any]] = [
            {"params": own, "lr": rate}
            for own, rate in zip(self.slices, rates.tolist(), strict=True)
        ]
        self.optimizer = make(groups)

    @torch.no_grad()
    def __call__(self, step: int, gradients: list[Tensor]) -> None:
        """Take one step of every model."""
        for member, own in enumerate(self.slices):
            for p, gradient in zip(own, gradients, strict=True):
                p.grad = gradient[member].view_as(p)
        self.optimizer.step()


def _slice(weight: Tensor, member: int) -> torch.nn.Parameter:
    """Return one model's weight, or its bias as a vector, in the same memory."""
    own = weight.detach()[member]
    return torch.nn.Parameter(own[0] if len(own) == 1 else own)
