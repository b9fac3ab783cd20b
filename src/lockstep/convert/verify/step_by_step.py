"""Compare two runs step by step."""

from __future__ import annotations

from lockstep.convert.verify.difference_reasons import drift, reason
from lockstep.convert.verify.printed_lines import differing
from lockstep.convert.verify.rounding_bounds import Bounds
from lockstep.convert.verify.runs import Run
from lockstep.convert.verify.verdict import DIFFERS, EQUAL, FAILED, Comparison, Difference

MOST_NOTES = 5


def compare(original: Run, nudged: Run, run: Run) -> Comparison:
    """Compare a result with the original. On one process not a bit may differ."""
    found = Comparison(replicas=run.replicas, status=EQUAL)
    if run.failure:
        found.status, found.reason, found.log = FAILED, run.failure, run.log
        return found
    found.first = _first(original, run, Bounds(original, nudged), found)
    if found.first is not None:
        found.status = DIFFERS
        found.reason, found.advice = reason(original, run, found.first.step)
        return found
    if _undivided(original, run):
        found.status, found.first = DIFFERS, Difference(1, "the global batch")
        found.reason = "every rank makes a batch as large as the original's."
        found.advice = f"Divide the batch size by the number of ranks, {run.replicas}."
        return found
    alone = run.replicas == 1
    for apart in differing(original, nudged, run, exact=alone):
        if alone or apart.evaluated:
            what = "what it prints" if alone else "the evaluation"
            found.status, found.first = DIFFERS, Difference(max(1, apart.step), what)
            found.reason = f"{apart.text}."
            break
        found.notes.append(apart.text)
    del found.notes[MOST_NOTES:]
    return found


def _first(original: Run, run: Run, bounds: Bounds, found: Comparison) -> Difference | None:
    """Return the first loss or weight that differs from the original."""
    ours, losses = {(e["optimizer"], e["step"]): e for e in run.steps}, run.losses()
    for event in original.first.of("loss", "weights"):
        if event["kind"] == "loss":
            number, step = event["number"], event["step"] + 1
            if number >= len(losses):
                return _short(original, run, step)
            gaps = [("the loss", abs(event["value"] - losses[number]), bounds.loss(number))]
        else:
            step = event["step"] + 1
            other = ours.get((event["optimizer"], event["step"]))
            if other is None:
                return _short(original, run, step)
            if "tensors" not in other:
                return Difference(step, "the list of trained weights")
            tensors = other["tensors"]
            rooms = bounds.weights(
                event["optimizer"], event["step"], [rounding for _, _, rounding, _ in tensors]
            )
            gaps = [(t[0], t[1], room) for t, room in zip(tensors, rooms, strict=True)]
            found.steps += 1
        for what, gap, room in gaps:
            bound = 0.0 if run.replicas == 1 else room
            # Not `>`, since a difference may be NaN.
            if not gap <= bound:
                return Difference(step, what, gap, bound)
            if gap * found.bound >= found.difference * bound:
                found.difference, found.bound, found.closest = gap, bound, what
    apart = drift(run)
    return Difference(apart[1] + 1, "the weights of the other ranks") if apart else None


def _short(original: Run, run: Run, step: int) -> Difference:
    made, meant = len(run.steps), len(original.steps)
    return Difference(step, f"the number of steps ({made}, in the original {meant})")


def _undivided(original: Run, run: Run) -> bool:
    """Return whether batches without a loader are as large on every rank as in the original."""
    shapes = [[e["shapes"] for e in one.first.of("forward")] for one in (original, run)]
    loads = any(event["batches"] for event in run.first.of("step"))
    return run.replicas > 1 and not loads and any(shapes[0]) and shapes[0] == shapes[1]
