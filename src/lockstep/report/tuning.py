"""Write the page of `lockstep tune`: how much more replicas help, and what limits them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lockstep.console import duration
from lockstep.report import page

Document = Mapping[str, Any]
_LOG = {"type": "log"}
_NOTE = (
    "The number of steps is S = Smin (1 + Bcrit / B). tune measures the noise scale at the start "
    "of the training. It usually grows later, so larger batches may help more than this."
)


def write_tuning_report(document: Document, path: Path) -> Path:
    """Write the document of `lockstep tune --json` as a page; return its path."""
    advice = document["advice"]
    best = max(advice, key=lambda one: one["speed_up"])
    word = f"{best['speed_up']:.1f}x with {best['replicas']} replicas"
    return page.write_page(
        path,
        f"{document['recipe']}: advice for more replicas",
        page.banner(word, page.sentence(best["why"]), "plain"),
        page.section("Advice", _table(document)),
        page.section("Time and batch", _pictures(document)),
        page.section("Measurements", _measured(document), page.paragraph(_NOTE)),
        *_verified(document),
    )


def _table(document: Document) -> str:
    rows = [
        (
            f"{a['replicas']:,}",
            f"{a['global_batch']:,}",
            f"{a['micro_batch']:,} x {a['accumulation']}",
            f"{a['learning_rate']:.4g} ({a['rule']})",
            f"{a['epochs']:,}",
            f"{a['steps']:,}",
            duration(a["seconds"]),
            f"{a['speed_up']:.2f}x",
            a["why"],
        )
        for a in document["advice"]
    ]
    columns = ["replicas", "global batch", "micro-batch", "learning rate", "epochs", "steps"]
    return page.table([*columns, "time", "speed-up", "why"], rows)


def _pictures(document: Document) -> str:
    advice, noise = document["advice"], document["noise"]
    numbers, whole = [a["replicas"] for a in advice], document["one_replica_seconds"]
    spent = [(a["replicas"], a["seconds"]) for a in advice]
    times = page.curve("advice", spent, page.BLUE)
    ideal = page.curve("linear", [(n, whole / n) for n in numbers], page.GREY, dash="dot")
    sizes = [(a["replicas"], a["global_batch"]) for a in advice]
    past = [p for p, (_, size) in zip(spent, sizes, strict=True) if size >= noise["critical_batch"]]
    marked = page.curve("past the critical batch", past, page.RED)
    marked |= {"mode": "markers", "marker": {"size": 11}}
    batches = page.curve("global batch", sizes, page.ORANGE)
    critical = page.level(batches, round(noise["critical_batch"]), "critical batch")
    scale = page.curve("noise scale", noise["curve"], page.PURPLE)
    micro = document["micro_batch"]["seconds"]
    rates = page.curve("", [(int(n), int(n) / seconds) for n, seconds in micro.items()], page.GREEN)
    axes: dict[str, Any] = {
        "xaxis": _LOG | {"tickvals": numbers, "title": {"text": "replicas"}},
        "yaxis": _LOG,
    }
    zero: dict[str, Any] = {
        "xaxis": _LOG | {"title": {"text": "micro-batch"}},
        "yaxis": {"rangemode": "tozero"},
    }
    return page.grid(
        page.figure("Training time (seconds)", [times, ideal, marked], **axes),
        page.figure("Global batch (samples)", [batches, *critical], **axes),
        page.figure("Gradient noise scale (samples)", [scale], x="steps", yaxis=_LOG),
        page.figure("Samples per second of one replica", [rates], **zero),
    )


def _measured(document: Document) -> str:
    noise, micro = document["noise"], document["micro_batch"]
    end = "no end" if noise["high"] is None else f"{noise['high']:,.0f}"
    value = f"{noise['value']:,.0f} samples ({noise['low']:,.0f} to {end})"
    rows = [
        ("device", str(document["device"])),
        ("critical batch", f"{noise['critical_batch']:,.0f} samples"),
        ("noise scale at the end", value),
        ("measured over", f"{noise['steps']:,} steps, by {noise['source']}"),
        ("largest micro-batch", f"{micro['largest']:,} ({micro['limit']})"),
        ("parameters", f"{document['parameters']:,}"),
        ("exchange", document["exchange"]["how"]),
    ]
    for number, spent in document["exchange"]["seconds"].items():
        rows.append((f"exchange of {number} replicas", f"{1e3 * spent:.2f} ms"))
    return page.table((), rows)


def _verified(document: Document) -> list[str]:
    found = document.get("verified")
    if not found:
        return []
    word, tone = ("Retained", "good") if found["retained"] else ("Not retained", "bad")
    banner = page.banner(word, page.sentence(found["sentence"]), tone)
    columns = ["seed", "one replica, original", f"{found['replicas']} replicas, as advised"]
    pairs = zip(found["seeds"], found["one"], found["many"], strict=True)
    rows = [(str(seed), f"{one:.4f}", f"{many:.4f}") for seed, one, many in pairs]
    return [page.section("Verified", banner, page.table(columns, rows))]
