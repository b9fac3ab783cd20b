"""Animate a step, measured or predicted: a lane for each GPU, and one for the work beside it.

A prediction takes the parts measured on one GPU, and each GPU computes as many samples as that one
did. One bucket of gradients for each third of the layers travels while the backward pass computes
the next; the update waits for the last bucket. The measured steps show how much the speed of a GPU
varies from step to step.
"""

from __future__ import annotations

from itertools import chain
from typing import Any

import numpy

from lockstep.engine.step.timeline import EXCHANGE, PARTS, WAITING
from lockstep.labs.lab0_why.step_parts import COMPUTE, Steps
from lockstep.predict.all_reduce_time import all_reduce_seconds, exchanges
from lockstep.report.page import label
from lockstep.report.run import COLOURS

FRAMES = 80
PAUSE = 60
FAMILIES = {
    "data": PARTS[:5],
    "forward, loss": PARTS[5:9],
    "backward": PARTS[9:12],
    "update": PARTS[12:],
    "waiting": (WAITING,),
    "all-reduce": (EXCHANGE,),
}
"""The groups of the fifteen parts, for the legend."""
_FIRST = {name: parts[len(parts) // 2] for name, parts in FAMILIES.items()}
LATENCY = 50e-6
"""Seconds of an empty all-reduce, for a link that was not measured."""
SHOWN = 2
"""The number of steps in the picture."""
BEFORE, BACKWARD, AFTER = (*PARTS[3:5], PARTS[2], *PARTS[5:9]), PARTS[9:12], PARTS[12:]
"""The parts in the order of a step; reading runs beside it."""
Lane = dict[str, list[list[Any]]]


def lanes_of(found: Steps, gpus: int, link: float | None) -> tuple[list[Lane], bool]:
    """Return the lanes of `gpus` GPUs on a link of `link` Gb/s, and whether they were measured."""
    run = found.run(gpus)
    if run is not None and (link is None or gpus == 1):
        return run["lanes"], True
    return predicted(found, gpus, link and link * 1e9 / 8), False


def figure(found: Steps, gpus: int, link: float | None) -> dict[str, Any]:
    """Draw and animate two steps."""
    lanes, measured = lanes_of(found, gpus, link)
    spans = _spans(lanes)
    end = max(span[3] for span in spans)
    names = list(chain.from_iterable((f"GPU {n}", f"beside {n}") for n in range(len(lanes))))
    traces, lengths = [], []
    for family, parts in FAMILIES.items():
        own = [span for span in spans if span[0] in parts]
        starts, ends = (numpy.array([span[at] for span in own], float) for at in (2, 3))
        lengths.append((starts, ends - starts))
        traces.append(
            {
                "type": "bar",
                "orientation": "h",
                "y": [span[1] for span in own],
                "base": [round(float(start), 3) for start in starts],
                "x": [round(float(length), 3) for length in ends - starts],
                "marker": {"color": [COLOURS[span[0]] for span in own] or COLOURS[_FIRST[family]]},
                "text": [label(_numbered(span[0])) for span in own],
                "textposition": "none",
                "customdata": [round(float(length), 3) for length in ends - starts],
                "hovertemplate": "%{text}: %{customdata:.2f} ms<extra></extra>",
                "name": family,
            }
        )
    now = {
        "x": [end, end],
        "y": [names[0], names[-1]],
        "mode": "lines",
        "line": {"color": COLOURS[WAITING], "width": 1},
        "showlegend": False,
        "hoverinfo": "skip",
    }
    axis = {"title": {"text": "ms"}, "range": [0, round(1.01 * end, 3)]}
    layout = {
        "barmode": "overlay",
        "bargap": 0.15,
        "xaxis": axis,
        "yaxis": {
            "title": {"text": ""},
            "autorange": "reversed",
            "categoryorder": "array",
            "categoryarray": names,
            # With many lanes, Plotly would label only every other one.
            "tickvals": names,
        },
    }
    return {
        "data": [*traces, now],
        "layout": layout,
        "frames": [_frame(lengths, moment) for moment in numpy.linspace(0, end, FRAMES)],
        "pause": PAUSE,
        "note": _note(found, gpus, link, lanes, measured),
    }


def _spans(lanes: list[Lane]) -> list[tuple[str, str, float, float]]:
    """Return (part, lane, start, end) of every span in the picture."""
    found = []
    for number, lane in enumerate(lanes):
        for kind, name in (("step", "GPU"), ("beside", "beside")):
            for part, start, end in lane[kind]:
                if end > 0:
                    found.append((part, f"{name} {number}", max(0.0, start), end))
    return found


def _frame(lengths: list[Any], moment: float) -> dict[str, Any]:
    shown = [
        numpy.round(numpy.clip(moment - starts, 0, full), 2).tolist() for starts, full in lengths
    ]
    place = round(float(moment), 2)
    data = [*({"x": x} for x in shown), {"x": [place, place]}]
    return {"traces": list(range(len(data))), "data": data}


def _numbered(part: str) -> str:
    return f"{PARTS.index(part) + 1} {part}" if part in PARTS else part


def _note(found: Steps, gpus: int, link: float | None, lanes: list[Lane], measured: bool) -> str:
    taken = step_ms(lanes)
    waiting = [waiting_ms(lane) for lane in lanes]
    rate = 1e3 * gpus * found.local_batch / taken
    place = "GPU" if found.device == "cuda" else "CPU core"
    if measured:
        shown = f"Measured here on {gpus} {place}{'s' if gpus > 1 else ''}"
    else:
        speed = link or (link_bandwidth(found) or 0.0) * 8 / 1e9
        wire = "a link" if link else "the link measured here"
        late = f" and {1e6 * LATENCY:.0f} µs per message" if link else ""
        shown = f"Predicted from the parts of one GPU, with {wire} of {speed:,.4g} Gb/s{late}"
    alone = step_ms(lanes_of(found, 1, None)[0])
    text = (
        f"{shown}: {taken:.1f} ms per step, {rate:,.0f} images/s, {gpus * alone / taken:.2f} times "
        "one."
    )
    if gpus > 1:
        worst = int(numpy.argmax(waiting))
        text += (
            f" GPU {worst} waits longest for the others and the link: {waiting[worst]:.1f} ms "
            "per step."
        )
    return text


def table(found: Steps) -> tuple[list[str], list[list[str]]]:
    """Return columns and rows: the mean milliseconds of each part, by number of replicas."""
    columns = ["part", *(f"on {run['replicas']}, ms" for run in found.runs)]
    rows = []
    for part in (*PARTS, WAITING):
        mean = [sum(one[part] for one in run["parts"]) / run["replicas"] for run in found.runs]
        rows.append([_numbered(part), *(f"{ms:.2f}" for ms in mean)])
    return columns, rows


def link_bandwidth(found: Steps) -> float | None:
    """Return the measured bytes per second between two replicas."""
    if not found.exchange_ms:
        return None
    # Each of two replicas sends the size of one gradient.
    return sum(found.gradients) / (found.exchange_ms / 1e3)


def predicted(found: Steps, gpus: int, bandwidth: float | None) -> list[Lane]:
    """Predict the lanes of `gpus` GPUs; `bandwidth` is in bytes per second (None: measured)."""
    usual = usual_step(found)
    speed = bandwidth or link_bandwidth(found) or 1e9
    seconds = [
        all_reduce_seconds(size, gpus, LATENCY if bandwidth else 0.0, speed)
        for size in found.gradients
    ]
    paces = list(chain.from_iterable(chain.from_iterable(run["pace"] for run in found.runs)))
    lanes: list[Lane] = [{"step": [], "beside": []} for _ in range(gpus)]
    clocks = [0.0] * gpus
    for step in range(SHOWN):
        ready = []
        for gpu, lane in enumerate(lanes):
            start = clocks[gpu]
            _reading(lane, usual, start)
            pace = paces[(gpu + step * gpus) % len(paces)]
            times = []
            for part in (*BEFORE, *BACKWARD):
                taken = usual[part] * (pace if part in COMPUTE else 1.0)
                _add(lane["step"], part, clocks, gpu, taken)
                if part in BACKWARD:
                    times.append(clocks[gpu])
            ready.append(times)
        spans = exchanges(ready, [1e3 * s for s in seconds]) if gpus > 1 else []
        for gpu, lane in enumerate(lanes):
            lane["beside"] += [[EXCHANGE, span.start, span.end] for span in spans]
            if spans:
                _add(lane["step"], WAITING, clocks, gpu, max(0.0, spans[-1].end - clocks[gpu]))
            for part in AFTER:
                _add(lane["step"], part, clocks, gpu, usual[part])
    return lanes


def usual_step(found: Steps) -> dict[str, float]:
    """Return the milliseconds of each part, from the shown steps of one replica.

    Reading runs ahead of the steps, so its time is the mean over all steps.
    """
    alone = found.run(1)
    assert alone is not None
    usual = dict.fromkeys(PARTS, 0.0) | {part: alone["parts"][0][part] for part in PARTS[:2]}
    for part, start, end in alone["lanes"][0]["step"]:
        usual[part] += (end - start) / SHOWN
    return usual


def _reading(lane: Lane, usual: dict[str, float], start: float) -> None:
    """Add the workers' reading for a later step."""
    for part in PARTS[:2]:
        end = start + usual[part]
        if end > start:
            lane["beside"].append([part, start, end])
        start = end


def _add(spans: list[list[Any]], part: str, clocks: list[float], gpu: int, taken: float) -> None:
    if taken > 0:
        spans.append([part, clocks[gpu], clocks[gpu] + taken])
    clocks[gpu] += taken


def step_ms(lanes: list[Lane]) -> float:
    """Return the milliseconds per step over all GPUs."""
    return max(lane["step"][-1][2] for lane in lanes) / SHOWN


def waiting_ms(lane: Lane) -> float:
    """Return the milliseconds per step that one replica waits for the others and the link."""
    return sum(end - start for part, start, end in lane["step"] if part == WAITING) / SHOWN
