"""Draw recorded backward passes: lanes of computing and exchanging, order, and overlap.

Two tables show one gradient around the all-reduce, and the weights after the step.
"""

from __future__ import annotations

from statistics import median
from typing import Any

from lockstep.labs.lab2_ddp.buckets import Recorded, named
from lockstep.labs.shared.drawing import COLOURS, Figure
from lockstep.report.page import BLUE, ORANGE

FRAMES = 60
PAUSE = 60
"""Milliseconds per frame: the animation shows a step of 30 ms for some seconds."""
SETTLED = 2
"""The first steps are not typical: one with a single bucket, and the first with new buckets."""

Notes = dict[str, Any]
GRADIENTS = ("gradient", "rank 0", "rank 1", "mean", "reduced")
WEIGHTS = ("weight", "rank 0", "rank 1")
ROWS = 5


def timeline(found: Recorded, cap: float, step: int) -> Figure:
    """Draw backward and all-reduce of each rank over time, with one colour per bucket."""
    by_rank = found.notes(cap, step)
    traces = [_bucket(by_rank, number) for number in range(len(by_rank[0]["buckets"]))]
    end = max(notes["end"] for notes in by_rank)
    frames = []
    for frame in range(FRAMES):
        now = end * (frame + 1) / FRAMES
        lengths = [
            [
                round(min(max(now - base, 0.0), length), 3)
                for base, length in zip(*bars, strict=True)
            ]
            for bars in ((trace["base"], trace["x"]) for trace in traces)
        ]
        frames.append({"traces": list(range(len(traces))), "data": [{"x": x} for x in lengths]})
    lanes = [lane for rank in range(len(by_rank)) for lane in _lanes(rank)]
    layout = {
        "barmode": "overlay",
        "bargap": 0.25,
        "showlegend": len(traces) <= len(COLOURS),
        "xaxis": {"title": {"text": "milliseconds of the backward pass"}, "range": [0, end]},
        "yaxis": {
            "title": {"text": "rank", "standoff": 8},
            "categoryorder": "array",
            "categoryarray": lanes[::-1],
            "range": [-0.6, len(lanes) - 0.4],
        },
    }
    note = "\n".join(_said(rank, notes) for rank, notes in enumerate(by_rank))
    return {"data": traces, "layout": layout, "frames": frames, "pause": PAUSE, "note": note}


def _lanes(rank: int) -> tuple[str, str]:
    return f"{rank} backward", f"{rank} all-reduce"


def _bucket(by_rank: list[Notes], number: int) -> dict[str, Any]:
    """Draw the all-reduce of a bucket on all ranks, and the layers whose weights it carries."""
    bars: list[tuple[str, float, float, str]] = []
    for rank, notes in enumerate(by_rank):
        computes, exchanges = _lanes(rank)
        own = notes["buckets"][number]
        inside = {name.rpartition(".")[0] for name in own["parameters"] if "weight" in name}
        for layer in notes["layers"]:
            if layer["name"] in inside:
                bars.append((computes, layer["start"], layer["end"], layer["name"]))
        text = f"bucket {number}: {', '.join(layers_of(own['parameters']))}, {_mb(own['bytes'])}"
        bars.append((exchanges, own["start"], own["end"], text))
    return {
        "type": "bar",
        "orientation": "h",
        "name": f"bucket {number}",
        "y": [lane for lane, *_ in bars],
        "base": [round(start, 3) for _, start, *_ in bars],
        "x": [round(end - start, 3) for _, start, end, _ in bars],
        "text": [text for *_, text in bars],
        "textposition": "none",
        "marker": {"color": _colour(number), "line": {"width": 1}},
        "hovertemplate": "%{text}<br>from %{base:.2f} ms, for %{x:.2f} ms<extra></extra>",
    }


def _colour(number: int) -> str:
    """Return the colour of a bucket; repeated colours are paler.

    >>> _colour(0), _colour(6)
    ('#3b82c4', '#9dc1e2')
    """
    colour = COLOURS[number % len(COLOURS)]
    if number < len(COLOURS):
        return colour
    parts = (int(colour[at : at + 2], 16) for at in (1, 3, 5))
    return "#" + "".join(f"{(part + 256) // 2:02x}" for part in parts)


def layers_of(parameters: list[str]) -> list[str]:
    """Return the layers to which some parameters belong, each once."""
    return list(dict.fromkeys(name.rpartition(".")[0] for name in parameters))


def _mb(size: int) -> str:
    return f"{size / 1e6:.2f} MB"


def _buckets(notes: Notes) -> str:
    count = len(notes["buckets"])
    return f"{count} bucket{'s' * (count > 1)}"


def _said(rank: int, notes: Notes) -> str:
    hidden, exchanged, waited = overlap(notes)
    return (
        f"Rank {rank}: {_buckets(notes)}, {exchanged:.1f} ms of all-reduce, "
        f"{hidden:.0%} of it during the backward pass; {waited:.1f} ms of waiting after the last "
        "gradient."
    )


def overlap(notes: Notes) -> tuple[float, float, float]:
    """Return the share of all-reduce time during computing, that time, and the wait at the end.

    >>> notes = {"start": 0.0, "end": 9.0, "ready": [{"at": 2.0}, {"at": 6.0}]}
    >>> overlap(notes | {"buckets": [{"start": 2.0, "end": 5.0}, {"start": 4.0, "end": 9.0}]})
    (0.5714285714285714, 7.0, 3.0)
    """
    last = max(one["at"] for one in notes["ready"])
    total = beside = 0.0
    at = notes["start"]
    for one in sorted(notes["buckets"], key=lambda bucket: bucket["start"]):
        start, end = max(at, one["start"]), max(at, one["end"])
        total += end - start
        beside += max(0.0, min(end, last) - min(start, last))
        at = end
    return (beside / total if total else 0.0), total, notes["end"] - last


def order(found: Recorded, cap: float, step: int) -> Figure:
    """Draw the order in which the gradients came on rank 0, and the bucket of each."""
    notes = found.notes(cap, step)[0]
    bucket_of = {name: one["number"] for one in notes["buckets"] for name in one["parameters"]}
    names = [one["name"] for one in notes["ready"]]
    numbers = [bucket_of[name] for name in names]
    data = {
        "x": names,
        "y": numbers,
        "mode": "markers",
        "marker": {
            "size": 12,
            "symbol": "square",
            "color": [_colour(number) for number in numbers],
        },
        "customdata": [round(one["at"], 2) for one in notes["ready"]],
        "hovertemplate": "%{x}: ready after %{customdata} ms, bucket %{y}<extra></extra>",
    }
    layout = {
        "showlegend": False,
        "xaxis": {
            "title": {"text": "gradients in the order in which they came"},
            "tickangle": -90,
            "tickfont": {"size": 10},
            "dtick": 1,
        },
        "yaxis": {
            "title": {"text": "bucket"},
            "tickvals": sorted(set(numbers)),
            "range": [max(numbers) + 0.5, -0.5],
        },
    }
    sizes = ", ".join(f"{one['number']}: {_mb(one['bytes'])}" for one in notes["buckets"])
    return {"data": [data], "layout": layout, "note": f"Bytes by bucket: {sizes}."}


def by_cap(found: Recorded) -> Figure:
    """Draw the time of the backward pass by bucket size, and its wait for the exchange."""
    whole, waited, notes = [], [], []
    for cap, steps in zip(found.caps, found.runs, strict=True):
        passes = [one for by_rank in steps[SETTLED:] for one in by_rank]
        waits = [overlap(one)[2] for one in passes]
        whole.append(round(median(p["end"] - p["start"] for p in passes) - median(waits), 3))
        waited.append(round(median(waits), 3))
        share = median(overlap(one)[0] for one in passes)
        notes.append(f"{named(cap)}: {_buckets(passes[0])}, {share:.0%} hidden")
    x = [named(cap) for cap in found.caps]
    layout = {
        "barmode": "stack",
        "xaxis": {"title": {"text": "bucket size"}, "type": "category"},
        "yaxis": {"title": {"text": "milliseconds, median"}},
    }
    bars = ((whole, "to the last gradient", BLUE), (waited, "then waiting", ORANGE))
    data = [
        {"type": "bar", "x": x, "y": y, "name": name, "marker": {"color": colour}}
        for y, name, colour in bars
    ]
    return {"data": data, "layout": layout, "note": ". ".join(notes) + "."}


def gradients(found: Recorded) -> list[list[str]]:
    """Return the first elements as text: of each rank, their mean, and the reduced ones."""
    before, after = found.exchange["before"], found.exchange["after"]
    return [
        [
            f"[{place}]",
            *(_number(gradient[place]) for gradient in before),
            _number((before[0][place] + before[1][place]) / 2),
            _number(after[0][place]),
        ]
        for place in range(ROWS)
    ]


def weights(found: Recorded) -> list[list[str]]:
    """Return the same elements of the weights after the step, as text."""
    return [
        [f"[{place}]", *(_number(one[place]) for one in found.exchange["weights"])]
        for place in range(ROWS)
    ]


def _number(value: float) -> str:
    return f"{value:+.5f}"


def verdict(found: Recorded) -> str:
    """Describe whether the ranks agree with each other and with the mean."""
    before, after, changed = (found.exchange[key] for key in ("before", "after", "weights"))
    worst = max(
        abs((a + b) / 2 - c) for a, b, c in zip(before[0], before[1], after[0], strict=True)
    )
    same = after[0] == after[1] and changed[0] == changed[1]
    agree = "equal to the bit" if same else "different"
    return (
        f"All {len(after[0])} elements: gradients and weights of the two ranks are {agree} after "
        f"the exchange. They differ from the mean by at most {worst:.1g}, which is rounding."
    )
