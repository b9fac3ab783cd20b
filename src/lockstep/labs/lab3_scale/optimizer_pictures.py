"""Draw the layer-wise optimizers: their accuracy by rate, and the effect of a step."""

from __future__ import annotations

from lockstep.labs.lab3_scale.optimizers import Optimizers
from lockstep.labs.shared.drawing import COLOURS, Figure, axes, band, line, ticks, tidy
from lockstep.report.page import GREY

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
