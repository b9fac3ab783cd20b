"""Write the page of a comparison between one replica and several."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from lockstep.console import duration
from lockstep.engine.run.run_folder import RunFolder
from lockstep.report import page
from lockstep.report.series import points

COLOURS = {"fast": page.BLUE, "exact": page.ORANGE}
PALE = {"fast": "#a9cbea", "exact": "#f5c7a6"}
NOTES = {
    "fast": "Fast mode: each replica computes its part of the global batch at once and exchanges "
    "gradients while backward still runs. Several replicas add the same numbers in another order "
    "than one, so the weights differ by rounding, which training then amplifies. Judge this mode "
    "by the metric.",
    "exact": "Exact mode: replicas compute shard by shard and add gradients in one fixed order, "
    "for any number of replicas. The final weights are identical to the bit. The fixed order "
    "costs some speed.",
}
Document = Mapping[str, Any]


def write_comparison_report(document: dict[str, Any], path: Path) -> Path:
    """Write the document of `lockstep compare --json` as a page; return its path."""
    verdict, metric = document["verdict"], _metric(document)
    word, tone = ("Passed", "good") if verdict["ok"] else ("Failed", "bad")
    return page.write_page(
        path,
        f"{document['recipe']}: one replica against {document['replicas']}",
        page.banner(word, page.sentence(verdict["sentence"]), tone),
        page.section("Numbers", *_numbers(document)),
        page.section(f"{metric.capitalize()} during training", _curves(document)),
        page.section("Is it faster?", _faster(document)),
        page.section("Is the result the same?", *_same(document)),
        page.section("Modes", *(page.paragraph(NOTES.get(m, m)) for m in document["modes"])),
    )


def _metric(document: Document) -> str:
    return str(document["metric"]).replace("_", " ")


def _counts(document: Document) -> dict[str, str]:
    """Return the names of the two sides of the comparison."""
    return {"one": "1 replica", "many": f"{document['replicas']} replicas"}


def _numbers(document: Document) -> list[str]:
    modes = document["modes"]
    metric = _metric(document)
    measures: list[tuple[str, Callable[[Document], Any], Callable[[Any], str]]] = [
        ("time", lambda run: run.get("seconds"), duration),
        ("samples/s", lambda run: run.get("samples_per_second"), page.number),
        (metric, lambda run: (run.get("metrics") or {}).get(document["metric"]), page.number),
    ]
    if document.get("target") is not None:
        name = f"time to {metric} {document['target']:g}"
        measures.append((name, lambda run: run.get("seconds_to_target"), duration))
    rows = [
        (f"{name}, {count}", *(_mean(map(get, mode[side]), say) for mode in modes.values()))
        for name, get, say in measures
        for side, count in _counts(document).items()
    ]
    rows[2:2] = [
        ("speed-up", *(_ratio(mode.get("speed_up"), "{:.2f}x") for mode in modes.values())),
        ("efficiency", *(_ratio(mode.get("efficiency"), "{:.0%}") for mode in modes.values())),
    ]
    largest = (_ratio(mode.get("largest_difference"), "{:.3g}") for mode in modes.values())
    rows.append(("largest difference of any weight", *largest))
    same = ("yes" if mode.get("identical") else "no" for mode in modes.values())
    rows.append(("identical to the bit", *same))
    parts = [page.table(["", *modes], rows)]
    if len(document["seeds"]) > 1:
        text = f"Times, samples/s and the metric are means over {len(document['seeds'])} seeds."
        parts.append(page.paragraph(text))
    return parts


def _mean(values: Iterable[Any], say: Callable[[Any], str]) -> str:
    values = list(values)
    found = [value for value in values if page.is_number(value)]
    if not found:
        return "-"
    missing = f" ({len(values) - len(found)} of {len(values)} never)"
    return say(fmean(found)) + (missing if len(found) < len(values) else "")


def _ratio(value: Any, form: str) -> str:
    return form.format(value) if page.is_number(value) else "-"


def _records(run: Document) -> list[Mapping[str, Any]]:
    """Read the run's metrics.jsonl; return nothing if its folder is gone."""
    try:
        found = RunFolder(Path(run["folder"])).metrics()
    except (KeyError, OSError, UnicodeDecodeError):
        return []
    return [record for record in found if isinstance(record, dict)]


def _curves(document: Document) -> str:
    runs = [
        (mode, side, number, _records(run))
        for side in ("one", "many")
        for mode, sides in document["modes"].items()
        for number, run in enumerate(sides[side])
    ]
    pictures = []
    for x, unit in (("seconds", "seconds"), ("step", "steps")):
        traces = [_curve(document, *run, x) for run in runs]
        longest = max(traces, key=lambda trace: max(trace["x"], default=0.0))
        level = page.level(longest, document.get("target"))
        title = f"Test {_metric(document)} against {unit}"
        pictures.append(page.figure(title, [*traces, *level], x=unit, height=420))
    return page.grid(*pictures) if any(pictures) else page.paragraph("The runs left no records.")


def _curve(
    document: Document, mode: str, side: str, number: int, records: Sequence[Any], x: str
) -> page.Trace:
    # Draw one replica broad and pale, several narrow on top, so that equal curves stay visible.
    line = {"one": (PALE, 7), "many": (COLOURS, 2)}[side]
    width = line[1] if len(document["seeds"]) == 1 else 0.7 * line[1]
    name = f"{mode}, {_counts(document)[side]}"
    found = points(records, x, document["metric"])
    trace = page.curve(name, found, line[0].get(mode, page.GREY), width=width)
    # Dots would hide which line lies on top; only a single point needs one.
    shape = "markers" if len(found) == 1 else "lines"
    return trace | {"legendgroup": name, "showlegend": number == 0, "mode": shape}


def _faster(document: Document) -> str:
    replicas, modes = document["replicas"], document["modes"]
    lines = [page.curve("ideal", [(1, 1), (replicas, replicas)], page.GREY, dash="dash")]
    for mode, sides in modes.items():
        ends = [(1, 1), (replicas, sides.get("speed_up"))]
        lines.append(page.curve(mode, ends, COLOURS.get(mode, page.GREY)))
    data = []
    for side, count in _counts(document).items():
        times = [_seconds(sides[side]) for sides in modes.values()]
        bars = page.bars(count, list(modes), times, page.GREY if side == "one" else page.GREEN)
        said = ["" if t is None else duration(t) for t in times]
        data.append(bars | {"text": said, "hovertemplate": "%{text}<extra></extra>"})
    axis = {"title": {"text": "replicas"}, "tickvals": [1, replicas]}
    zero = {"rangemode": "tozero"}
    down = {"autorange": "reversed"}
    return page.grid(
        page.figure("Speed-up", lines, xaxis=axis, yaxis=zero),
        page.figure("Time", data, x="seconds", barmode="group", yaxis=down),
    )


def _seconds(runs: Iterable[Document]) -> float | None:
    found = [run["seconds"] for run in runs if page.is_number(run.get("seconds"))]
    return fmean(found) if found else None


def _same(document: Document) -> Iterator[str]:
    found = document["accuracy"]
    yield page.paragraph(page.sentence(found["sentence"]))
    margin, differences = document["margin"], found["differences"]
    if len(differences) > 1:
        yield _differences(document, margin, differences)
    one, many = _counts(document).values()
    pairs = zip(document["seeds"], found["one"], found["many"], differences, strict=False)
    rows = [(f"seed {seed}", *(page.number(value) for value in pair)) for seed, *pair in pairs]
    rows.append(("mean difference", "", "", page.number(found["mean_difference"])))
    if found.get("bound") is not None:
        text = f"bound, {found['confidence']:.0%} confidence"
        rows.append((text, "", "", page.number(found["bound"])))
    rows.append(("margin", "", "", page.number(margin)))
    yield page.table([_metric(document), one, many, "difference"], rows)


def _differences(document: Document, margin: float, differences: Sequence[float]) -> str:
    seeds = [f"seed {seed}" for seed in document["seeds"]]
    dots = page.curve("", list(zip(seeds, differences, strict=False)), page.BLUE)
    dots |= {"mode": "markers", "marker": {"size": 10}}
    reach = 1.3 * max([margin, *(abs(d) for d in differences if page.is_number(d))])
    band = {"type": "rect", "xref": "paper", "x0": 0, "x1": 1, "y0": -margin, "y1": margin}
    band |= {"fillcolor": page.GREEN, "opacity": 0.18, "line": {"width": 0}, "layer": "below"}
    sides = f"{document['replicas']} replicas minus 1"
    title = f"Difference of each seed, {sides}; the band is the margin of {margin:g}"
    return page.figure(title, [dots], yaxis={"range": [-reach, reach]}, shapes=[band])
