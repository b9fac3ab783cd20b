"""Ranks that clip different gradients."""

from __future__ import annotations

from collections.abc import Iterator

from lockstep.doctor.findings import Sighting, by_rank
from lockstep.probes.trace import Trace

SAME = 1e-6


def look(trace: Trace) -> Iterator[Sighting]:
    """Find clipping before backward, before unscale_, or of gradients that differ between ranks."""
    clips = list(trace.ranks[0].of("clip"))
    early = next((e for e in clips if not e["backwards"]), None)
    scaled = next((e for e in clips if e["scale"] != 1.0), None)
    if early is not None:
        yield Sighting(
            early["place"],
            f"step {early['step'] + 1} clips before its backward pass, when there are no gradients",
        )
    elif scaled is not None:
        yield Sighting(
            scaled["place"],
            f"step {scaled['step'] + 1} clips gradients that are still multiplied by the loss "
            f"scale, {scaled['scale']:g}: their norm is {scaled['norm']:.4g}",
        )
    else:
        yield from apart(trace)


def apart(trace: Trace) -> Iterator[Sighting]:
    """Find the first clipping whose norm differs between ranks."""
    clips = [[(e["step"], e["place"], e["norm"]) for e in rank.of("clip")] for rank in trace.ranks]
    for same in zip(*clips, strict=False):
        step, place, norm = same[0]
        if any(other[:2] != (step, place) for other in same[1:]):
            return
        if any(abs(other[2] - norm) > SAME * abs(norm) for other in same[1:]):
            norms = by_rank(f"{one[2]:.4g}" for one in same)
            yield Sighting(
                place,
                f"in step {step + 1} the ranks clip different gradients (norm {norms}): they "
                "had not been added over the ranks",
            )
            return
