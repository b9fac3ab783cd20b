"""Compare two runs step by step, and find the reason why they differ."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from lockstep.convert.verify.printed_lines import differing
from lockstep.convert.verify.rounding_bounds import Bounds
from lockstep.convert.verify.runs import Run, timeless
from lockstep.convert.verify.verdict import (
    DIFFERS,
    EQUAL,
    FAILED,
    INDIVISIBLE,
    Comparison,
    Difference,
)
from lockstep.probes.trace import Event, Rank

MOST_NOTES = 5
_CANNOT = re.compile(r"a batch of [\w ]+ cannot be divided by \d+ processes")
"""What a converted program says of a batch."""
Reason = tuple[str, str]
NEAR = 1e-3
"""Ratios closer than this count as equal."""

UNKNOWN = "no known reason explains it."
VAGUE = "rounding explains most of what training changes, so that they agree proves nothing."
MOST_EXPLAINED = 0.5
"""The largest share of the training that rounding may explain."""
PRINTS = "what it prints"


def compare(
    original: Run,
    nudged: Run,
    run: Run,
    *,
    losses: bool = True,
    exact: bool = False,
    converted: bool = False,
    double: bool = False,
    steps: int | None = None,
    again: Sequence[Run] = (),
) -> Comparison:
    """Compare a result with the original. On one process not a bit may differ.

    Without `losses`, only weights count. With `exact`, no bit may differ on any number of ranks.
    With `converted`, all ranks must hold what one process holds, and write its files once. Weights
    are compared for some `steps` of each optimizer. With `double`, the runs computed in float64.
    `again` holds more runs of the original, which show what it prints differently every time.
    """
    found = Comparison(replicas=run.replicas, status=EQUAL)
    if run.failure:
        found.status, found.reason, found.log = FAILED, run.failure, run.log
        said = _CANNOT.search(run.log)
        if said is not None and converted and run.replicas > 1:
            found.status, found.reason, found.log = INDIVISIBLE, f"{said[0]}.", ""
        return found
    bounds = Bounds(original, nudged, double=double)
    found.first = _first(original, run, bounds, found, steps, losses=losses, exact=exact)
    if found.first is not None:
        found.status = DIFFERS
        found.reason, found.advice = reason(original, run, found.first.step)
        return found
    if _undivided(original, run):
        found.status, found.first = DIFFERS, Difference(1, "the global batch")
        found.reason = "every rank makes a batch as large as the original's."
        found.advice = f"Divide the batch size by the number of ranks, {run.replicas}."
        return found
    wrong = _kept_apart(original, run) or _written(original, nudged, run) if converted else None
    if wrong is not None:
        found.status, found.first, found.reason = DIFFERS, *wrong
        return found
    alone = run.replicas == 1
    lines = list(differing(original, [nudged, *again], run, exact=alone, files=converted))
    found.apart = sum(len(apart.numbers) or 1 for apart in lines)
    for apart in lines:
        if alone or apart.evaluated:
            what = PRINTS if alone else "the evaluation"
            found.status, found.first = DIFFERS, Difference(max(1, apart.step), what)
            found.reason = f"{apart.text}."
            break
        found.notes.append(apart.text)
    del found.notes[MOST_NOTES:]
    return found


def _kept_apart(original: Run, run: Run) -> tuple[Difference, str] | None:
    """Find a rank whose optimizer holds something else than those of the other ranks."""
    rates = {(e["optimizer"], e["step"]): e["rates"] for e in original.first.of("step")}
    for number, rank in enumerate(run.ranks):
        for event in rank.of("step"):
            theirs = rates.get((event["optimizer"], event["step"]))
            if theirs is not None and theirs != event["rates"]:
                where = Difference(event["step"] + 1, "the learning rate")
                return where, (
                    f"it is {_list(event['rates'])} on rank {number}, and {_list(theirs)} in the "
                    "original."
                )
    for same in zip(*(rank.of("weights") for rank in run.ranks), strict=False):
        if len({event["state"] for event in same}) > 1:
            where = Difference(same[0]["step"] + 1, "what the optimizer keeps")
            return where, "it is not the same on all ranks."
    return None


def _written(original: Run, nudged: Run, run: Run) -> tuple[Difference, str] | None:
    """Find a file that the result does not write, or writes more than once."""
    theirs, moved = original.files, nudged.files
    ours: dict[str, list[int]] = {}
    for number, rank in enumerate(run.ranks):
        for event in rank.of("file"):
            ours.setdefault(timeless(event["path"]), []).append(number)
    same = {path for path in theirs if path in moved}
    named = len(same) == len(theirs)
    for path, ranks in ours.items():
        if path in theirs and len(ranks) > 1:
            several = " and ".join(map(str, ranks))
            return Difference(1, f"the file {path}"), f"ranks {several} write it."
        if path not in theirs and named and path not in moved:
            return Difference(1, f"the file {path}"), "the original does not write it."
    for path in theirs:
        if path in same and path not in ours:
            return Difference(1, f"the file {path}"), "the result does not write it."
        mine = run.files.get(path)
        names = set(theirs[path]["names"])
        if path in same and mine is not None and names != set(mine["names"]):
            apart = sorted(names ^ set(mine["names"]))[0]
            where = "result" if apart not in names else "original"
            return Difference(1, f"the file {path}"), f"only that of the {where} holds {apart}."
    return None


def _first(
    original: Run,
    run: Run,
    bounds: Bounds,
    found: Comparison,
    steps: int | None,
    *,
    losses: bool,
    exact: bool,
) -> Difference | None:
    """Return the first loss or weight that differs from the original."""
    ours, lost = {(e["optimizer"], e["step"]): e for e in run.steps}, run.losses()
    weighed = run.weighed_losses()
    for event in original.first.of(*("loss",) * losses, "weights"):
        if steps is not None and event["step"] >= steps:
            continue
        if event["kind"] == "loss":
            number, step = event["number"], event["step"] + 1
            if number >= len(lost):
                return _short(original, run, step)
            limit = 0.0 if run.replicas == 1 or exact else bounds.loss(number)
            gap = min((abs(event["value"] - each[number]) for each in (lost, weighed)), default=0.0)
            gaps = [("the loss", gap, limit)]
        else:
            step = event["step"] + 1
            other = ours.get((event["optimizer"], event["step"]))
            if other is None:
                return _short(original, run, step)
            if "tensors" not in other:
                return Difference(step, "the list of trained weights")
            tensors = other["tensors"]
            roundings = [rounding for _, _, rounding, _ in tensors]
            limits = [0.0] * len(tensors)
            if run.replicas > 1 and not exact:
                limits = bounds.weights(event["optimizer"], event["step"], roundings)
                share = bounds.explained(event["optimizer"], event["step"], limits)
                found.explained = max(found.explained, share)
                if found.explained <= MOST_EXPLAINED:
                    found.clear = max(found.clear, event["step"] + 1)
            gaps = [(t[0], t[1], limit) for t, limit in zip(tensors, limits, strict=True)]
            if exact and event["digest"] != other["digest"] and not any(gap for _, gap, _ in gaps):
                return Difference(step, "the bits of the weights")
            found.steps += 1
        for what, gap, bound in gaps:
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


def reason(original: Run, run: Run, step: int) -> Reason:
    """Return the most likely reason for a difference in a step, counted from 1."""
    for look in (_samples, _uneven, _rates, _backwards, _sums, _norms, _drifts, _draws):
        found = look(original, run, step)
        if found is not None:
            return found
    return UNKNOWN, ""


def _samples(original: Run, run: Run, step: int) -> Reason | None:
    """Compare the samples that all ranks took together, batch by batch."""
    theirs, ours = _taken(original.first), [_taken(rank) for rank in run.ranks]
    for place in sorted(theirs):
        when, whole = theirs[place]
        mine = [taken[place][1] for taken in ours if place in taken]
        if when > step or len(mine) < len(ours):
            continue
        both = sorted(sample for part in mine for sample in part)
        if both == sorted(whole):
            continue
        loader, turn, _ = place
        again = [taken.get((loader, 0, place[2]), (0, []))[1] for taken in ours]
        if len(mine) > 1 and all(part == mine[0] for part in mine):
            return (
                "every rank takes the same samples.",
                "Give the loader a DistributedSampler.",
            )
        if turn and again == mine:
            return (
                f"pass {turn + 1} takes the samples in the order of the first pass.",
                "Call sampler.set_epoch(epoch) at the start of every epoch.",
            )
        first = theirs.get((loader, turn, 0), (0, []))[1]
        if len(whole) < len(first) and set(whole) <= set(both) and len(both) > len(whole):
            return (
                f"the last batch of a pass is {len(both)} samples, in the original {len(whole)}: "
                "the sampler repeats samples to give every rank the same number.",
                "Use drop_last=True, or data whose size is a multiple of the global batch.",
            )
        if len(both) != len(whole):
            return (
                f"the global batch is {len(both)} samples, in the original {len(whole)}.",
                f"Divide the batch size by the number of ranks, {len(ours)}.",
            )
        return "together, the ranks take different samples than the original.", ""
    return None


def _taken(rank: Rank) -> dict[tuple[int, int, int], tuple[int, list[int]]]:
    """Return by loader, pass and batch: the step, and a mark for each sample."""
    when: dict[int, int] = {}
    step = 1
    for event in rank.events:
        if event["kind"] == "weights":
            step = max(step, event["step"] + 2)
        elif event["kind"] == "batch":
            when[id(event)] = step
    found = {}
    training = [loader for loader in rank.loaders if loader.trains]
    for number, loader in enumerate(training):
        for turn, one in enumerate(p for p in loader.passes if p.trains):
            for batch in one.batches[: one.learned]:
                # Prefer the contents of a sample to its index, which may count within a rank.
                marks = batch.get("rows") or batch.get("indices") or []
                found[number, turn, batch["number"]] = when[id(batch)], marks
    return found


def _uneven(original: Run, run: Run, step: int) -> Reason | None:
    """Compare how many samples each rank took for the step."""
    same = [event for rank in run.ranks for event in rank.steps if event["step"] == step - 1]
    sizes = [event["samples"] for event in same]
    if len(set(sizes)) > 1:
        return (
            f"the ranks took {' and '.join(map(str, sizes))} samples for step {step}, and DDP "
            "averages their means as if every rank had the same number.",
            "Multiply the loss of each rank by its samples, and by the number of ranks; divide it "
            "by the samples of all ranks.",
        )
    return None


def _rates(original: Run, run: Run, step: int) -> Reason | None:
    for number, event, other in _unlike(original, run, step, "rates"):
        return (
            f"the learning rate of step {number} is {_list(other['rates'])}, in the original "
            f"{_list(event['rates'])}.",
            "Keep the rate: the global batch is the same.",
        )
    return None


def _unlike(original: Run, run: Run, step: int, fact: str) -> Iterator[tuple[int, Event, Event]]:
    """Yield the number of each step that differs in a fact, with the events of both runs."""
    ours = {(event["optimizer"], event["step"]): event for event in run.first.of("step")}
    for event in original.first.of("step"):
        other = ours.get((event["optimizer"], event["step"]), event)
        if event["step"] < step and other[fact] != event[fact]:
            yield event["step"] + 1, event, other


def _list(rates: list[float]) -> str:
    return ", ".join(f"{rate:g}" for rate in dict.fromkeys(rates))


def _backwards(original: Run, run: Run, step: int) -> Reason | None:
    for number, event, other in _unlike(original, run, step, "backwards"):
        return (
            f"step {number} comes after {other['backwards']} backward(s), in the original after "
            f"{event['backwards']}.",
            "",
        )
    return None


def _sums(original: Run, run: Run, step: int) -> Reason | None:
    ratios = [b / a for a, b in zip(original.losses(), run.losses(), strict=False) if a][:1]
    moved = [event["ratio"] for event in run.steps if event.get("ratio") is not None][:1]
    for ratio, what in ((ratios, "loss"), (moved, "first step")):
        for value in ratio:
            if run.replicas > 1 and _near(value, 1 / run.replicas):
                return (
                    f"the {what} is 1/{run.replicas} of the original's: it is a sum over the "
                    "batch, and DDP averages it over the ranks.",
                    "Multiply the loss by the number of ranks before backward.",
                )
            if run.replicas > 1 and _near(value, run.replicas):
                return (
                    f"the {what} is {run.replicas} times the original's.",
                    "A mean over the batch must not be multiplied by the number of ranks.",
                )
    return None


def _near(a: float, b: float) -> bool:
    return abs(a - b) <= NEAR * abs(b)


def _norms(original: Run, run: Run, step: int) -> Reason | None:
    norms = sum(event["norms"] for event in run.first.of("wrapped"))
    if norms and run.replicas > 1:
        return (
            f"{norms} batch norm layer(s) see only the batch of one rank.",
            "Use torch.nn.SyncBatchNorm.convert_sync_batchnorm(model).",
        )
    return None


def drift(run: Run) -> tuple[int, int] | None:
    """Return the first step (optimizer, step) after which the ranks hold different weights."""
    for same in zip(*(rank.of("weights") for rank in run.ranks), strict=False):
        if len({event["digest"] for event in same}) > 1:
            return same[0]["optimizer"], same[0]["step"]
    return None


def _drifts(original: Run, run: Run, step: int) -> Reason | None:
    if drift(run) is not None:
        return (
            "the ranks hold different weights.",
            "Wrap everything that is trained in DistributedDataParallel, and call the wrapper.",
        )
    return None


def _draws(original: Run, run: Run, step: int) -> Reason | None:
    if any(event["step"] < step for event in run.first.of("drew_itself")):
        return (
            "the script draws random numbers in a way that lockstep cannot repeat on all ranks.",
            "This proves nothing about the script: switch them off and verify again.",
        )
    return None
