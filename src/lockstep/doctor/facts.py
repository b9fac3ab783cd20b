"""Collect what a run showed as numbers for the report, right or wrong."""

from __future__ import annotations

import re
from collections import Counter
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

from lockstep.doctor.findings import near, near_place
from lockstep.doctor.run import Examined
from lockstep.probes import run_script
from lockstep.probes.run_script import Stuck
from lockstep.probes.trace import Loader, Pass, Trace

Facts = dict[str, Any]
_FRAME = re.compile(r'File "(?P<path>[^"]+)", line (?P<line>\d+) in (?P<name>\S+)')
_PROBES = str(Path(run_script.__file__).parent)
TAIL = 15
"""Lines to keep from the end of a script's output."""


def facts(examined: Examined) -> Facts:
    """Return everything that the report shows about a run."""
    trace = examined.trace
    return {
        "ended": trace.outcome.how,
        "resumed": trace.resumed.outcome.how if trace.resumed is not None else None,
        "seconds": round(trace.outcome.seconds, 2),
        "ranks": trace.size,
        "backend": next((event["backend"] for event in trace.of("group")), None),
        "fake_cuda": trace.fake_cuda,
        "fake_data": trace.fake_data,
        **_steps(trace),
        "passes": [_pass(same, trace) for same in trace.together() if same[0].batches],
        "schedulers": _schedulers(trace),
        "waiting": round(trace.waiting()[0], 4),
        "drift": _drift(trace),
        "oracle": trace.oracle
        and {name: value for name, value in trace.oracle.items() if name not in ("kind", "at")},
        "files": _files(trace),
        "stuck": [_stuck(one, trace) for one in trace.outcome.stuck],
        "last_words": _last_words(trace),
        "not_seen": _not_seen(trace),
    }


def _steps(trace: Trace) -> Facts:
    by_rank = [rank.steps for rank in trace.ranks]
    steps = min(map(len, by_rank), default=0)
    if not steps:
        return {"steps": 0}
    samples = [sum(s["samples"] for s in same) for same in zip(*by_rank, strict=False)]
    sizes = Counter(samples)
    first = by_rank[0]
    return {
        "steps": steps,
        "global_batch": sizes.most_common(1)[0][0] or None,
        "per_rank": [median(s["samples"] for s in mine) for mine in by_rank],
        "batches_per_step": Counter(s["batches"] for s in first).most_common(1)[0][0],
        # Only for DDP: FSDP or a loop over the gradients reduces in other ways.
        "reductions_per_step": Counter(s["synced"] for s in first).most_common(1)[0][0]
        if any(trace.ranks[0].of("wrapped"))
        else None,
        "rates": [[mine[0]["rates"], mine[steps - 1]["rates"]] for mine in by_rank],
    }


def _schedulers(trace: Trace) -> list[Facts]:
    """Count the steps of each scheduler."""
    found: dict[int, Facts] = {}
    for event in trace.ranks[0].of("scheduled") if trace.ranks else ():
        new = {"type": event["type"], "place": near_place(event["place"]), "stepped": 0}
        found.setdefault(event["scheduler"], new)["stepped"] += 1
    return list(found.values())


def _pass(same: list[Pass], trace: Trace) -> Facts:
    first = same[0]
    indices = [one.indices for one in same]
    # An index identifies a sample only if the ranks hold the same data.
    own = not first.loader["parts"] and _own_data([one.loader for one in same])
    named = [[(n * own, index) for index in one] for n, one in enumerate(indices)]
    counts = Counter(sample for one in named for sample in one)
    by_rank = [set(one) for one in named]
    total = first.loader["samples"]
    if own and total is not None:
        total = sum(one.loader["samples"] for one in same)
    before = next(
        (one for one in reversed(first.loader.passes[: first.turn]) if one.trains == first.trains),
        None,
    )
    order = None
    if before is not None and first.indices:
        length = min(len(before.indices), len(first.indices))
        order = "same" if before.indices[:length] == first.indices[:length] else "new"
    complete = all(one.complete for one in same)
    return {
        "loader": near_place(first.loader.place),
        "pass": first.turn + 1,
        "epoch": first.epoch,
        "trains": first.trains,
        "complete": complete,
        "data_set": total,
        "samples": [sum(batch["size"] for batch in one.batches) for one in same],
        "distinct": len(counts) if counts else None,
        "shared": len(set.intersection(*by_rank)) if counts and len(by_rank) > 1 else None,
        "twice": sum(count - 1 for count in counts.values()) if counts else None,
        "missing": total - len(counts) if counts and complete and total is not None else None,
        "order": order,
    }


def _own_data(loaders: list[Loader]) -> bool:
    """Return whether each rank has its own data, where an index means another sample."""
    kept = [
        (one["samples"], [p for p in (one["contents"] or {}).values() if p[0] == one["samples"]])
        for one in loaders
    ]
    return any(
        samples != kept[0][0] or [p[2] for p in prints] != [p[2] for p in kept[0][1]]
        for samples, prints in kept
    )


def _drift(trace: Trace) -> Facts:
    looked, apart, buffers = 0, None, False
    for events in trace.looked("stepped"):
        # Sharded optimizers (ZeRO) hold other parameters on each rank.
        shared = set.intersection(*(set(e["parameters"]) for e in events))
        looked += bool(shared)
        values = [{name: e["parameters"][name] for name in shared} for e in events]
        if apart is None and any(one != values[0] for one in values):
            apart = events[0]["step"] + 1
        buffers = buffers or any(e["buffers"] != events[0]["buffers"] for e in events)
    return {"looked": looked, "parameters_differ_after_step": apart, "buffers_differ": buffers}


def _files(trace: Trace) -> list[Facts]:
    found: dict[str, set[int]] = {}
    for rank in trace.ranks:
        for event in rank.of("wrote"):
            if event["how"] != "opened" or Path(event["path"]).exists():
                found.setdefault(event["path"], set()).add(rank.number)
    return [{"path": str(near(Path(p))), "ranks": sorted(ranks)} for p, ranks in found.items()]


def _stuck(one: Stuck, trace: Trace) -> Facts:
    rank = next((rank for rank in trace.ranks if rank.pid == one.pid), None)
    called = list(rank.of("collective")) if rank is not None else []
    return {
        "rank": rank.number if rank is not None else None,
        "doing": re.sub(r"\S+:\d+$", lambda m: near_place(m[0]), one.doing),
        "last_collective": called[-1]["name"] + " at " + near_place(called[-1]["place"])
        if called
        else None,
        "stack": frames(one.stack),
    }


def frames(stack: str) -> list[str]:
    """Return the main thread's frames of a dump, outermost last, as `path:line in name`."""
    threads = re.split(r"(?m)^(?:Current thread|Thread) 0x", stack)
    mains = [t for t in threads if _FRAME.search(t)]
    # The bottom of the main thread is the script; faulthandler writes that thread last.
    found = _FRAME.finditer(mains[-1]) if mains else ()
    return [
        f"{_short(m['path'])}:{m['line']} in {m['name']}"
        for m in found
        if not m["path"].startswith(_PROBES)
    ]


def _short(path: str) -> str:
    """Shorten the paths of installed libraries to their names."""
    installed = re.split(r"/(?:site|dist)-packages/", path)
    return installed[-1] if len(installed) > 1 else str(near(Path(path)))


def _last_words(trace: Trace) -> list[str]:
    """Return the last lines of the first rank that failed."""
    if trace.outcome.how != "crashed":
        return []
    crashes = sorted(
        (event["at"], rank.number) for rank in trace.ranks for event in rank.of("crashed")
    )
    bad = [n for n, code in enumerate(trace.outcome.codes) if code]
    number = crashes[0][1] if crashes else (bad[0] if bad else 0)
    logs = trace.outcome.logs
    log = logs[number] if number < len(logs) else logs[0]
    text = log.read_text(errors="replace")
    return text.rstrip().splitlines()[-TAIL:]


def _not_seen(trace: Trace) -> list[str]:
    """Return what the run was too short to show."""
    found = []
    passes = [one for rank in trace.ranks[:1] for one in rank.passes]
    training = [one for one in passes if one.trains]
    if not training:
        found.append("training from a DataLoader")
    elif not any(a.loader is b.loader for a, b in pairwise(training)):
        found.append("a second epoch")
    if not any(one.evaluates for one in passes):
        found.append("a whole evaluation")
    if not any(event["how"] == "saved" for event in trace.of("wrote")):
        found.append("a checkpoint")
    if trace.resumed is None:
        found.append("a resume")
    return found
