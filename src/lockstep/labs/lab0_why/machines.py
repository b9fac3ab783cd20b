"""The days and dollars of a training run on machines that the learner picks."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from lockstep.report.page import BLUE, ORANGE, label

PEAK, SEEN, BROCHURE = "bf16 peak", "bf16 measured", "the brochure's"
RATES = (PEAK, SEEN, BROCHURE)
"""The rated speeds of a GPU: the peak of dense matrix products in 16 bits; the measured speed of a
large product; the largest number in the data sheet, for 8 bits with every other weight zero."""


class Kind(NamedTuple):
    """A kind of machine: TF/s, and the lowest and highest dollars per hour in August 2026."""

    name: str
    peak: float
    seen: float | None = None
    brochure: float | None = None
    dollars: tuple[float, float] | None = None

    def rate(self, which: str) -> float:
        """Return the TF/s of one machine; the peak if the chosen number is not published."""
        return {PEAK: self.peak, SEEN: self.seen, BROCHURE: self.brochure}[which] or self.peak


CPU_SERVER = Kind("dual-CPU server", 128 * 2.9 * 64 / 1000)
"""Two CPUs with 64 cores at 2.9 GHz and 64 float32 operations per cycle (two AVX-512 units,
multiply and add): 24 TF/s."""
H100 = Kind("H100", 989, 794, 3958, (3.29, 3.99))
GPUS = (
    Kind("T4", 65, dollars=(0.35, 0.53)),
    Kind("L4", 121, dollars=(0.49, 0.56)),
    Kind("V100", 125, dollars=(0.79, 3.06)),
    Kind("RTX 4090", 165, dollars=(0.35, 0.74)),
    Kind("A100 80 GB", 312, 271, 624, (1.39, 4.10)),
    Kind("L40S", 362, dollars=(0.99, 0.99)),
    H100,
    Kind("H200", 989, 794, 3958, (4.50, 9.31)),
    Kind("B200", 2250, 1745, 9000, (6.69, 11.28)),
)
KINDS = (CPU_SERVER, *GPUS)


def days(pf_days: float, machine_pf: float, utilisation: float) -> float:
    """Return the days of a training of `pf_days` PF/s-days on a machine of `machine_pf` PF/s.

    >>> days(1000, 32, 1.0)
    31.25
    """
    return pf_days / (machine_pf * utilisation)


class Bill(NamedTuple):
    """The time and price of a training run."""

    days: float
    dollars: tuple[float, float] | None


def bill(kind: Kind, count: int, pf_days: float, utilisation: float, rate: str = PEAK) -> Bill:
    """Compute the bill on `count` machines that reach `utilisation` of the chosen rate."""
    taken = days(pf_days, count * kind.rate(rate) / 1000, utilisation)
    if kind.dollars is None:
        return Bill(taken, None)
    low, high = kind.dollars
    return Bill(taken, (24 * taken * count * low, 24 * taken * count * high))


def figure(pf_days: float, count: int, utilisation: float, rate: str) -> dict[str, Any]:
    """Draw the days on `count` machines of every kind."""
    names = [kind.name for kind in KINDS]
    bills = [bill(kind, count, pf_days, utilisation, rate) for kind in KINDS]
    taken = [b.days for b in bills]
    bars = {
        "type": "bar",
        "orientation": "h",
        "y": names,
        "x": [float(f"{days:.4g}") for days in taken],
        "marker": {"color": BLUE},
        "text": [label(spoken(days)) for days in taken],
        "textposition": "outside",
        "cliponaxis": False,
        "customdata": [label(priced(b.dollars)) for b in bills],
        "hovertemplate": "%{y}: %{text}, %{customdata}<extra></extra>",
    }
    # Leave room for the words at the ends, and start every bar at the left edge.
    low, high = math.log10(min(taken) / 5), math.log10(max(taken) * 30)
    marks = [("day", 1.0), ("month", 30.4), ("year", 365.25), ("century", 36525.0)]
    shown = [(name, days) for name, days in marks if low < math.log10(days) < high]
    axis = {"title": {"text": "days"}, "type": "log", "exponentformat": "power", "dtick": 1}
    layout = {
        "bargap": 0.35,
        "xaxis": axis | {"range": [round(low, 3), round(high, 3)]},
        "yaxis": {"title": {"text": "machine"}, "autorange": "reversed"},
        "shapes": [
            {"type": "line", "yref": "paper", "x0": days, "x1": days, "y0": 0, "y1": 1}
            | {"line": {"color": ORANGE, "width": 1, "dash": "dot"}}
            for _, days in shown
        ],
        "annotations": [
            {"x": math.log10(days), "y": 1, "yref": "paper", "yanchor": "bottom", "text": name}
            | {"showarrow": False, "font": {"color": ORANGE, "size": 11}}
            for name, days in shown
        ],
    }
    return {"data": [bars], "layout": layout, "note": _note(pf_days, count, utilisation, rate)}


def _note(pf_days: float, count: int, utilisation: float, rate: str) -> str:
    chosen = bill(H100, count, pf_days, utilisation, rate)
    slow = bill(CPU_SERVER, 1, pf_days, utilisation, rate)
    return (
        f"{pf_days:,g} PF/s-days are {pf_days * 86_400e15:.2g} operations. "
        f"{count:,} H100 at {utilisation:.0%} of {H100.rate(rate):,g} TF/s each: "
        f"{spoken(chosen.days)}, {priced(chosen.dollars)}. More machines cost no more as long as "
        f"the utilisation stays. One dual-CPU server: {spoken(slow.days)}."
    )


def spoken(taken: float) -> str:
    """Format a number of days.

    >>> spoken(0.02), spoken(31.25), spoken(42000)
    ('29 min', '31 days', '115 years')
    """
    for unit, length in (("years", 365.25), ("days", 1.0), ("h", 1 / 24)):
        if taken >= 2 * length:
            return f"{taken / length:,.0f} {unit}"
    return f"{1440 * taken:.0f} min"


def priced(dollars: tuple[float, float] | None) -> str:
    """Format a price range.

    >>> priced((1234.5, 5678.9)), priced(None)
    ('1,200 to 5,700 dollars', 'no price known')
    """
    if dollars is None:
        return "no price known"
    low, high = (f"{float(f'{value:.2g}'):,.0f}" for value in dollars)
    return f"{low} dollars" if low == high else f"{low} to {high} dollars"
