"""Predict the step of several GPUs from the parts measured on one.

Each GPU computes as many samples as the one did. One bucket of gradients for each third of the
layers travels while the backward pass computes the next; the update waits for the last bucket. The
measured steps show how much the speed of a GPU varies from step to step.
"""

from __future__ import annotations

from itertools import chain
from typing import Any

from lockstep.engine.step.timeline import EXCHANGE, PARTS, WAITING
from lockstep.labs.lab0_why.step_parts import COMPUTE, Steps
from lockstep.predict.all_reduce_time import all_reduce_seconds, exchanges

LATENCY = 50e-6
"""Seconds of an empty all-reduce, for a link that was not measured."""
SHOWN = 2
"""The number of steps in the picture."""
BEFORE, BACKWARD, AFTER = (*PARTS[3:5], PARTS[2], *PARTS[5:9]), PARTS[9:12], PARTS[12:]
"""The parts in the order of a step; reading runs beside it."""

Lane = dict[str, list[list[Any]]]


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
