"""Write report.html of a run: its result, its curves, and where the time went."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from statistics import fmean
from typing import Any

from lockstep.console import duration
from lockstep.engine.run.run_folder import RunFolder
from lockstep.engine.step.timeline import EXCHANGE, PARTS, WAITING
from lockstep.report import page
from lockstep.report.series import Record, curves, names, own_series, points, spoken

MOST_LANES = 8
"""Most replicas that the pictures show; of more, the first ones."""
_FAMILIES = (
    ("#0b7a6b", "#2fa08d", "#5cc0a8", "#9bd3c2", "#7fae4e"),  # data
    ("#1d4f91", "#2f78c4", "#62a3e0", "#9cc7ef"),  # forward
    ("#5b2a86", "#8449b8", "#b084d8"),  # backward
    ("#b8860b", "#e0a82e", "#9aa0a6"),  # optimizer, return control
    ("#d6453d", "#f0a39d"),  # all-reduce
)
COLOURS = dict(zip((*PARTS, WAITING, EXCHANGE), chain(*_FAMILIES), strict=True))
_DOWN = {"autorange": "reversed"}


def write_run_report(folder: Path) -> Path:
    """Write report.html into the folder of a run, finished or not; return its path."""
    source = RunFolder(folder)
    run = source.summary()
    records = [r for r in source.metrics() if isinstance(r, dict) and page.is_number(r.get("step"))]
    recipe = run.get("recipe", {})
    # A program may only evaluate: then there is nothing to learn from curves of one point.
    learns = not _only_evaluates(run)
    return page.write_page(
        folder / "report.html",
        f"{recipe.get('name', 'A run')}: report of a lockstep run",
        _state(run),
        page.cards(_headlines(run, recipe, records)),
        page.section("Learning", *_learning(run, recipe, records)) if learns else "",
        page.section("Speed", _speed(run, records)) if learns else "",
        _timeline(run),
        page.section("The program" if "program" in recipe else "The recipe", _facts(recipe)),
        page.section("The machine and the plan", _facts(_set_up(run))),
    )


def _state(run: Record) -> str:
    status = str(run.get("status", "unknown"))
    if status == "finished":
        return ""
    text = str(run.get("error", "The run had not ended when this page was written."))
    return page.banner(status.capitalize(), text, "bad" if status == "failed" else "plain")


def _only_evaluates(run: Record) -> bool:
    return run.get("status") == "finished" and run.get("steps") == 0


def _headlines(run: Record, recipe: Record, records: Sequence[Record]) -> list[page.Card]:
    # An unfinished run has no totals; its last records show how far it got.
    known: dict[str, Any] = {"step": 0, "epoch": 0.0, "seconds": 0.0}
    for found in (*records, run.get("metrics") or {}, run):
        known |= found
    mode = "exact mode" if run.get("exact") else "fast mode"
    length = f"{known.get('steps', known['step']):,} steps, {known['epoch']:.4g} epochs"
    measured = recipe.get("metrics", {})
    cards = [(spoken(n), page.number(known.get(n)), "on the test data") for n in measured]
    if best := run.get("best"):
        place = f"after step {best['step']:,}, in best.safetensors"
        cards.append((f"best {spoken(best['name'])}", page.number(best["value"]), place))
    if _only_evaluates(run):
        cards.append(("time", duration(known["seconds"]), "without training"))
    else:
        cards.append(("time", duration(known["seconds"]), length))
        cards.append(("samples/s", page.number(known.get("samples_per_second")), "in training"))
    cards.append(("replicas", str(run.get("replicas", 1)), mode))
    if recipe.get("target") is not None and "seconds_to_target" in run:
        reached = run["seconds_to_target"]
        value = "not reached" if reached is None else duration(reached)
        relation = "≤" if recipe.get("lower_is_better") else "≥"
        goal = f"{cards[0][0]} {relation} {recipe['target']:g}"
        cards.append(("time to target", value, goal))
    if run.get("weights_sha256"):
        how = "Check it in the folder of the run: sha256sum weights.safetensors"
        if _only_evaluates(run):
            how = f"The run evaluated {run.get('loaded', 'them')} and wrote no weights."
        cards.append(("SHA-256 of the weights", str(run["weights_sha256"]), how))
    return cards


def _learning(run: Record, recipe: Record, records: Sequence[Record]) -> list[str]:
    test = page.curve("test", points(records, "step", "test_loss"), page.ORANGE)
    loss = [*curves(records, "loss", "training"), test]
    found = [y for trace in loss for y in trace["y"] if page.is_number(y)]
    wide = found and min(found) > 0 and max(found) > 1000 * min(found)
    axis = {"type": "log"} if wide else {}
    pictures = [page.figure("Loss", loss, x="steps", yaxis=axis)]
    measured = [name for name in recipe.get("metrics", {}) if name != "test_loss"]
    for number, name in enumerate(measured):
        target = None if number else recipe.get("target")
        for x, unit in (("step", "steps"), ("seconds", "seconds")):
            line = page.curve(spoken(name), points(records, x, name), page.ORANGE)
            title = f"Test {spoken(name).removeprefix('test ')} against {unit}"
            pictures.append(page.figure(title, [line, *page.level(line, target)], x=unit))
    pictures += own_series(records)
    noise = points(records, "step", "noise_scale")
    if any(page.is_number(value) for _, value in noise):
        pictures.append(_noise(recipe, records, noise))
    notes = []
    if run.get("stopped_early"):
        notes.append(f"Training stopped early: {run['stopped_early']}.")
    ended = "program" in recipe and run.get("status") == "finished"
    if not ended and not any(record.get("kind") == "test" for record in records):
        notes.append("The run has no evaluation on the test data yet.")
    known = (*names(records, "loss"), "test_loss", *measured)
    values = [v for r in records for k, v in r.items() if k in known]
    bad = sum(not page.is_number(value) for value in values)
    if bad:
        notes.append(
            f"{bad} of {len(values)} values are NaN or infinite; the curves have gaps there."
        )
    return [page.grid(*pictures), *map(page.paragraph, notes)]


def _noise(recipe: Record, records: Sequence[Record], noise: page.Points) -> str:
    """Draw the noise scale, up to which larger batches help, beside the batch that was used."""
    curves = [page.curve("noise scale", noise, page.BLUE)]
    for name in ("low", "high"):
        curves.append(page.curve(name, points(records, "step", f"noise_{name}"), page.GREY))
    grown = points(records, "step", "global_batch")
    batch = page.level(curves[0], recipe.get("global_batch"), "global batch")
    if grown:
        batch = [page.curve("global batch", grown, page.ORANGE)]
    title = "Gradient noise scale (samples)"
    return page.figure(title, [*curves, *batch], x="steps", yaxis={"type": "log"})


def _speed(run: Record, records: Sequence[Record]) -> str:
    rates = page.curve("", points(records, "seconds", "samples_per_second"), page.GREEN)
    learning_rates = curves(records, "learning_rate", colour=page.PURPLE)
    spent = {name: s for name, s in run.get("time", {}).items() if page.is_number(s)}
    bars = page.bars("", list(spent), list(spent.values()), page.BLUE)
    bars |= {
        "text": [duration(s) for s in spent.values()],
        # Plotly would squeeze text into a short bar.
        "textposition": [
            "inside" if 4 * s > max(spent.values()) else "outside" for s in spent.values()
        ],
        "hovertemplate": "%{text}<extra></extra>",
    }
    zero = {"rangemode": "tozero"}
    return page.grid(
        page.figure("Samples per second", [rates], x="seconds", yaxis=zero),
        page.figure("Learning rate", learning_rates, x="steps", yaxis=zero),
        page.figure("Where the time went", [bars], x="seconds", yaxis=_DOWN),
    )


def _facts(pairs: Record) -> str:
    return page.table(
        (),
        [
            (name.replace("_", " "), _spoken(value))
            for name, value in pairs.items()
            # A program has no target, and may evaluate nothing.
            if "program" not in pairs or value not in (None, {})
        ],
    )


def _spoken(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return {True: "yes", False: "no", None: "-"}[value]
    if isinstance(value, Mapping):
        return ", ".join(k if k == v else f"{k}: {v}" for k, v in value.items())
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _set_up(run: Record) -> Record:
    plan = ("replicas", "exact", "shards_per_replica", "micro_batch", "accumulation")
    names = (*plan, "parameters", "train_samples", "test_samples")
    found = dict(run.get("machine", {})) | {name: run[name] for name in names if name in run}
    speed = run.get("speed") or {}
    if speed.get("name"):
        found["steps"] = f"{speed['name']}{': ' + speed['why'] if speed.get('why') else ''}"
    if page.is_number(run.get("peak_memory_bytes")):
        found["peak memory of replica 0"] = f"{run['peak_memory_bytes'] / 2**20:,.0f} MiB"
    return found


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
        notes.append(
            "Data workers read in parallel: the bars show their time, the step does not include it."
        )
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
        return "This run needs no all-reduce."
    # The waiting time also includes moments just before and after the all-reduce.
    waiting = min(total, fmean(r["parts"][WAITING] for r in replicas))
    share = f"{waiting:.2f} ms of it ({waiting / total:.0%})"
    return f"The all-reduce takes {total:.2f} ms per step; backward does not hide {share}."


def _means(replicas: Sequence[Record]) -> str:
    lanes = [f"replica {rank}" for rank in range(len(replicas))]
    data = [
        page.bars(part, lanes, [r["parts"].get(part, 0.0) for r in replicas], colour)
        for part, colour in COLOURS.items()
    ]
    layout = {"barmode": "stack", "showlegend": False, "yaxis": _DOWN}
    return page.figure("Mean step", data, x="ms", height=100 + 40 * len(lanes), **layout)


def _last_steps(run: Record, replicas: Sequence[Record]) -> str:
    zeros = _zeros(run, replicas)
    window = max(_end(r) - zero for r, zero in zip(replicas, zeros, strict=True))
    spans = [
        (part, f"{lane} {rank}", max(start - zero, -window), end - zero)
        for rank, (replica, zero) in enumerate(zip(replicas, zeros, strict=True))
        for kind, lane in (("step", "replica"), ("beside", "beside"))
        for step in replica["detail"]
        for part, start, end in step[kind]
        # Workers read far ahead, and on a GPU they use another clock.
        if -window < end - zero <= window
    ]
    data = []
    for part, colour in COLOURS.items():
        own = [span for span in spans if span[0] == part]
        bars = page.bars(part, [s[1] for s in own], [1e3 * (s[3] - s[2]) for s in own], colour)
        data.append(bars | {"base": [1e3 * s[2] for s in own]})
    lanes = list(dict.fromkeys(span[1] for span in spans))
    starts = [1e3 * (step["step"][0][1] - zeros[0]) for step in replicas[0]["detail"]]
    first = run.get("steps", 0) - len(starts) + 1
    dots = {"width": 1, "dash": "dot", "color": page.GREY}
    line = {"type": "line", "yref": "paper", "y0": 0, "y1": 1, "line": dots}
    marks = [line | {"x0": x, "x1": x} for x in starts]
    order = _DOWN | {"categoryorder": "array", "categoryarray": lanes}
    layout = {"barmode": "overlay", "showlegend": False, "yaxis": order, "shapes": marks}
    title = f"The last steps, {first} to {first + len(starts) - 1}"
    return page.figure(title, data, x="ms", height=100 + 34 * len(lanes), **layout)


def _end(replica: Record) -> float:
    # Leave out the last return of control: it may contain a long evaluation.
    return max(float(end) for part, _, end in replica["detail"][-1]["step"] if part != PARTS[-1])


def _zeros(run: Record, replicas: Sequence[Record]) -> list[float]:
    """Return where the common time axis starts on the clock of each replica."""
    starts = [float(r["detail"][0]["step"][0][1]) for r in replicas]
    on_cpu = run.get("machine", {}).get("device") == "cpu"
    if on_cpu and max(starts) < min(_end(r) for r in replicas):
        return [min(starts)] * len(replicas)
    # The clocks differ. An all-reduce ends on all replicas at once, so align these ends.
    beside = [r["detail"][0]["beside"] for r in replicas]
    ends = [[end for part, _, end in spans if part == EXCHANGE] for spans in beside]
    return [max(end) - max(ends[0]) + starts[0] for end in ends] if all(ends) else starts


def _parts(replicas: Sequence[Record]) -> str:
    own = {name: [r["parts"].get(name, 0.0) for r in replicas] for name in (*PARTS, WAITING)}
    own |= {"whole step": [r["step"] for r in replicas]}
    columns = [f"replica {rank}, ms" for rank in range(len(replicas))]
    if len(replicas) > MOST_LANES:
        columns = ["mean, ms", "least, ms", "most, ms"]
        own = {name: [fmean(ms), min(ms), max(ms)] for name, ms in own.items()}
    rows = [(name, *(f"{v:.2f}" for v in ms)) for name, ms in own.items()]
    return page.table(["part of a step", *columns], rows, COLOURS)
