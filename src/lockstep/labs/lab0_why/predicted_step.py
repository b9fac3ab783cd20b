"""The step of several GPUs, predicted from the parts that were measured on one.

Each GPU computes as many samples as the one did. A bucket of gradients for each third of the layers
travels while backward computes the next; the update waits for the last of them. How much faster or
slower than usual a GPU computes in a step is taken from steps that were measured.
"""

from __future__ import annotations

from itertools import chain
from typing import Any

from lockstep.engine.step.timeline import EXCHANGE, PARTS, WAITING
from lockstep.labs.lab0_why.step_parts import COMPUTE, Steps
from lockstep.predict.all_reduce_time import all_reduce_seconds, exchanges

LATENCY = 50e-6
"""Seconds of an all-reduce of nothing, where the link was not measured."""
SHOWN = 2
"""Steps."""
BEFORE, BACKWARD, AFTER = (*PARTS[3:5], PARTS[2], *PARTS[5:9]), PARTS[9:12], PARTS[12:]
"""In the order in which a step goes through them; reading runs beside it."""

Lane = dict[str, list[list[Any]]]


def link_bandwidth(found: Steps) -> float | None:
    """Bytes per second between the replicas that were measured."""
    if not found.exchange_ms:
        return None
    # Two replicas send the gradient once.
    return sum(found.gradients) / (found.exchange_ms / 1e3)


def predicted(found: Steps, gpus: int, bandwidth: float | None) -> list[Lane]:
    """The lanes of so many GPUs on a link of `bandwidth` bytes per second; None: the measured."""
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
    """Milliseconds of each part: of the steps of one replica that are shown.

    Reading, which runs ahead of the steps, is taken from the mean of all.
    """
    alone = found.run(1)
    assert alone is not None
    usual = dict.fromkeys(PARTS, 0.0) | {part: alone["parts"][0][part] for part in PARTS[:2]}
    for part, start, end in alone["lanes"][0]["step"]:
        usual[part] += (end - start) / SHOWN
    return usual


def _reading(lane: Lane, usual: dict[str, float], start: float) -> None:
    """Workers read for a later step."""
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
    """Milliseconds from step to step, over all."""
    return max(lane["step"][-1][2] for lane in lanes) / SHOWN


def waiting_ms(lane: Lane) -> float:
    """Milliseconds of a step in which one replica waits for the others and the link."""
    return sum(end - start for part, start, end in lane["step"] if part == WAITING) / SHOWN
