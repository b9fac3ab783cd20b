"""report.html of a run: what it reached, how it got there, and where the time went."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from statistics import fmean
from typing import Any

from lockstep.console import duration
from lockstep.engine.folder import RunFolder
from lockstep.engine.timeline import EXCHANGE, PARTS, WAITING
from lockstep.report import page

MOST_LANES = 8
"""Replicas drawn one by one; of more, the first ones."""
_FAMILIES = (
    ("#0b7a6b", "#2fa08d", "#5cc0a8", "#9bd3c2", "#7fae4e"),  # data
    ("#1d4f91", "#2f78c4", "#62a3e0", "#9cc7ef"),  # forward
    ("#5b2a86", "#8449b8", "#b084d8"),  # backward
    ("#b8860b", "#e0a82e", "#9aa0a6"),  # optimizer, return control
    ("#d6453d", "#f0a39d"),  # all-reduce
)
COLOURS = dict(zip((*PARTS, WAITING, EXCHANGE), chain(*_FAMILIES), strict=True))
Record = Mapping[str, Any]


def write_run_report(folder: Path) -> Path:
    """Write report.html into the folder of a run, finished or not; its path."""
    source = RunFolder(folder)
    run = source.summary()
    records = [r for r in source.metrics() if isinstance(r, dict) and page.is_number(r.get("step"))]
    recipe = run.get("recipe", {})
    return page.write_page(
        folder / "report.html",
        f"{recipe.get('name', 'A run')}: a run of lockstep",
        _state(run),
        page.cards(_headlines(run, recipe, records)),
        page.section("Learning", *_learning(recipe, records)),
        page.section("Speed", _speed(run, records)),
        _timeline(run),
        page.section("The recipe", page.facts(recipe)),
        page.section("The machine and the plan", page.facts(_set_up(run))),
    )


def _state(run: Record) -> str:
    status = str(run.get("status", "unknown"))
    if status == "finished":
        return ""
    text = str(run.get("error", "The run had not ended when this page was written."))
    return page.banner(status.capitalize(), text, "bad" if status == "failed" else "plain")


def _headlines(run: Record, recipe: Record, records: Sequence[Record]) -> list[page.Card]:
    # A run that did not finish has no totals; its last records say how far it came.
    known = {"step": 0, "epoch": 0.0, "seconds": None}
    for record in records:
        known |= record
    known |= run.get("metrics") or {}
    names = list(recipe.get("metrics", {}))
    cards = [(page.words(n), page.number(known.get(n)), "on the test data") for n in names]
    seconds = run.get("seconds", known["seconds"])
    length = f"{run.get('steps', known['step']):,} steps, {known['epoch']:.4g} epochs"
    cards.append(("time", page.time(seconds), length))
    cards.append(("samples per second", page.number(run.get("samples_per_second")), "in training"))
    mode = "exact mode" if run.get("exact") else "fast mode"
    cards.append(("replicas", str(run.get("replicas", 1)), mode))
    if recipe.get("target") is not None and names:
        reached = run.get("seconds_to_target")
        relation = "≤" if recipe.get("lower_is_better") else "≥"
        goal = f"{page.words(names[0])} {relation} {recipe['target']:g}"
        value = "not reached" if reached is None else page.time(reached)
        cards.append(("time to target", value, goal))
    if run.get("weights_sha256"):
        how = "Check it in the folder of the run: sha256sum weights.safetensors"
        cards.append(("SHA-256 of the weights", str(run["weights_sha256"]), how))
    return cards


def _learning(recipe: Record, records: Sequence[Record]) -> list[str]:
    loss = [
        page.curve("training", page.points(records, "step", "loss"), page.BLUE),
        page.curve("test", page.points(records, "step", "test_loss"), page.ORANGE),
    ]
    found = [y for trace in loss for y in trace["y"] if page.is_number(y)]
    wide = found and min(found) > 0 and max(found) > 1000 * min(found)
    axis = {"type": "log"} if wide else {}
    pictures = [page.figure("Loss", loss, x="steps", yaxis=axis)]
    names = list(recipe.get("metrics", {}))
    for number, name in enumerate(names):
        target = None if number else recipe.get("target")
        for x, unit in (("step", "steps"), ("seconds", "seconds")):
            line = page.curve(page.words(name), page.points(records, x, name), page.ORANGE)
            title = f"Test {page.words(name)} against {unit}"
            pictures.append(page.figure(title, [line, *page.level(line, target)], x=unit))
    notes = []
    if not any(record.get("kind") == "test" for record in records):
        notes.append("The run has not been evaluated on the test data yet.")
    values = [v for r in records for k, v in r.items() if k in ("loss", "test_loss", *names)]
    bad = sum(not page.is_number(value) for value in values)
    if bad:
        notes.append(f"{bad} of {len(values)} values are NaN or infinite: gaps in the curves.")
    return [page.grid(*pictures), *map(page.paragraph, notes)]


def _speed(run: Record, records: Sequence[Record]) -> str:
    rates = page.curve("", page.points(records, "seconds", "samples_per_second"), page.GREEN)
    learning_rate = page.curve("", page.points(records, "step", "learning_rate"), page.PURPLE)
    spent = {name: s for name, s in run.get("time", {}).items() if page.is_number(s)}
    bars = page.bars("", list(spent), list(spent.values()), page.BLUE)
    bars |= {"text": [duration(s) for s in spent.values()], "hoverinfo": "skip"}
    zero = {"rangemode": "tozero"}
    return page.grid(
        page.figure("Samples per second", [rates], x="seconds", yaxis=zero),
        page.figure("Learning rate", [learning_rate], x="steps", yaxis=zero),
        page.figure("Where the time went", [bars], x="seconds", height=280, yaxis=page.DOWN),
    )


def _set_up(run: Record) -> Record:
    names = "replicas exact shards_per_replica micro_batch accumulation".split()
    sizes = ("parameters", "train_samples", "test_samples")
    found = run.get("machine", {}) | {name: run[name] for name in names if name in run}
    found |= {name: page.number(run[name]) for name in sizes if name in run}
    if "peak_memory_bytes" in run:
        found["peak memory of replica 0"] = f"{run['peak_memory_bytes'] / 2**20:,.0f} MiB"
    return dict(found)


def _timeline(run: Record) -> str:
    replicas = [r for r in run.get("timeline") or [] if r and r["detail"]]
    if not replicas:
        return ""
    shown = replicas[:MOST_LANES]
    beside = {part for r in shown for step in r["detail"] for part, _, _ in step["beside"]}
    used = beside | {part for r in shown for part, ms in r["parts"].items() if ms}
    notes = [_exchange(replicas)]
    if len(replicas) > len(shown):
        notes.append(f"The pictures show the first {len(shown)} of {len(replicas)} replicas.")
    if beside - {EXCHANGE}:
        notes.append("Data workers read and transport beside the step; the bars count that too.")
    return page.section(
        "Inside a step",
        *map(page.paragraph, notes),
        page.legend({part: colour for part, colour in COLOURS.items() if part in used}),
        _means(shown),
        _last_steps(run, shown),
        _parts(replicas),
    )


def _exchange(replicas: Sequence[Record]) -> str:
    total = fmean(r["exchange"] for r in replicas)
    if total == 0:
        return "There is no all-reduce: the run has one replica."
    # What a step waits for also holds the moments around the all-reduce itself.
    waiting = min(total, fmean(r["parts"][WAITING] for r in replicas))
    share = f"{waiting:.2f} ms of it ({waiting / total:.0%}) is not hidden behind backward."
    return f"The all-reduce takes {total:.2f} ms per step; {share}"


def _means(replicas: Sequence[Record]) -> str:
    lanes = [f"replica {rank}" for rank in range(len(replicas))]
    data = [
        page.bars(part, lanes, [r["parts"].get(part, 0.0) for r in replicas], colour)
        for part, colour in COLOURS.items()
    ]
    layout = {"barmode": "stack", "showlegend": False, "yaxis": page.DOWN}
    height = 100 + 40 * len(lanes)
    return page.figure("Mean time of each part", data, x="ms per step", height=height, **layout)


def _last_steps(run: Record, replicas: Sequence[Record]) -> str:
    zeros = _zeros(run, replicas)
    window = max(_end(r) - zero for r, zero in zip(replicas, zeros, strict=True))
    spans = [
        (part, f"{'replica' if kind == 'step' else 'beside'} {rank}", start - zero, end - start)
        for rank, (replica, zero) in enumerate(zip(replicas, zeros, strict=True))
        for kind in ("step", "beside")
        for step in replica["detail"]
        for part, start, end in step[kind]
        # Workers read ahead, and on a GPU they go by another clock.
        if part in COLOURS and -window <= start - zero and end - zero <= window
    ]
    data = []
    for part in dict.fromkeys(part for part, *_ in spans):
        own = [(lane, 1e3 * start, 1e3 * length) for p, lane, start, length in spans if p == part]
        lanes, starts, lengths = ([s[i] for s in own] for i in range(3))
        data.append(page.bars(part, lanes, lengths, COLOURS[part]) | {"base": starts})
    lanes = list(dict.fromkeys(lane for _, lane, *_ in spans))
    first = run.get("steps", 0) - len(replicas[0]["detail"]) + 1
    marks = {
        f"step {first + i}": 1e3 * (step["step"][0][1] - zeros[0])
        for i, step in enumerate(replicas[0]["detail"])
    }
    order = page.DOWN | {"categoryorder": "array", "categoryarray": lanes}
    layout = {"barmode": "overlay", "showlegend": False, "yaxis": order, **page.uprights(marks)}
    height = 100 + 34 * len(lanes)
    return page.figure("The last steps", data, x="ms", height=height, **layout)


def _end(replica: Record) -> float:
    return float(replica["detail"][-1]["step"][-1][2])


def _zeros(run: Record, replicas: Sequence[Record]) -> list[float]:
    """Where the common time axis starts, on the clock of each replica."""
    starts = [float(r["detail"][0]["step"][0][1]) for r in replicas]
    on_cpu = run.get("machine", {}).get("device") == "cpu"
    if on_cpu and max(starts) < min(_end(r) for r in replicas):
        return [min(starts)] * len(replicas)
    # Clocks of their own: an all-reduce ends on all replicas at once, so let these ends meet.
    beside = [r["detail"][0]["beside"] for r in replicas]
    ends = [[end for part, _, end in spans if part == EXCHANGE] for spans in beside]
    if not all(ends):
        return starts
    return [max(end) - (max(ends[0]) - starts[0]) for end in ends]


def _parts(replicas: Sequence[Record]) -> str:
    own = {name: [r["parts"].get(name, 0.0) for r in replicas] for name in (*PARTS, WAITING)}
    own |= {"the step in all": [r["step"] for r in replicas]}
    columns = [f"replica {rank}, ms" for rank in range(len(replicas))]
    if len(replicas) > MOST_LANES:
        columns = ["mean, ms", "least, ms", "most, ms"]
        own = {name: [fmean(ms), min(ms), max(ms)] for name, ms in own.items()}
    rows = [(name, *(f"{v:.2f}" for v in ms)) for name, ms in own.items()]
    return page.table(["part of a step", *columns], rows, COLOURS)
