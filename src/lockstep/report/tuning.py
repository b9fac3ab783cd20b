"""Write the page of `lockstep tune`: how much more replicas help, and what limits them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lockstep.console import duration
from lockstep.report import page

Document = Mapping[str, Any]
_LOG = {"type": "log"}


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
        page.section("Measurements", _measured(document), *_notes(document)),
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
    times = page.curve("advice", [(a["replicas"], a["seconds"]) for a in advice], page.BLUE)
    whole = document["one_replica_seconds"]
    ideal = page.curve(
        "linear", [(a["replicas"], whole / a["replicas"]) for a in advice], page.GREY, dash="dot"
    )
    past = [a for a in advice if a["global_batch"] >= noise["critical_batch"]]
    marked = page.curve(
        "past the critical batch", [(a["replicas"], a["seconds"]) for a in past], page.RED
    ) | {"mode": "markers", "marker": {"size": 11}}
    batches = page.curve(
        "global batch", [(a["replicas"], a["global_batch"]) for a in advice], page.ORANGE
    )
    critical = page.level(batches, round(noise["critical_batch"]), "critical batch")
    scale = page.curve("noise scale", noise["curve"], page.PURPLE)
    sizes = document["micro_batch"]["seconds"]
    rates = page.curve(
        "", [(int(size), int(size) / spent) for size, spent in sizes.items()], page.GREEN
    )
    ticks = {"tickvals": [a["replicas"] for a in advice], "title": {"text": "replicas"}}
    return page.grid(
        page.figure(
            "Training time (seconds)", [times, ideal, marked], xaxis=_LOG | ticks, yaxis=_LOG
        ),
        page.figure("Global batch (samples)", [batches, *critical], xaxis=_LOG | ticks, yaxis=_LOG),
        page.figure("Gradient noise scale (samples)", [scale], x="steps", yaxis=_LOG),
        page.figure(
            "Samples per second of one replica",
            [rates],
            xaxis=_LOG | {"title": {"text": "micro-batch"}},
            yaxis={"rangemode": "tozero"},
        ),
    )


def _measured(document: Document) -> str:
    noise, micro = document["noise"], document["micro_batch"]
    end = "no end" if noise["high"] is None else f"{noise['high']:,.0f}"
    exchange = document["exchange"]["seconds"]
    return page.table(
        (),
        [
            ("device", str(document["device"])),
            ("critical batch", f"{noise['critical_batch']:,.0f} samples"),
            (
                "noise scale at the end",
                f"{noise['value']:,.0f} samples ({noise['low']:,.0f} to {end})",
            ),
            ("measured over", f"{noise['steps']:,} steps, by {noise['source']}"),
            ("largest micro-batch", f"{micro['largest']:,} ({micro['limit']})"),
            ("parameters", f"{document['parameters']:,}"),
            ("exchange", document["exchange"]["how"]),
            *(
                (f"exchange of {number} replicas", f"{1e3 * spent:.2f} ms")
                for number, spent in exchange.items()
            ),
        ],
    )


def _notes(document: Document) -> list[str]:
    text = (
        "The number of steps is S = Smin (1 + Bcrit / B). tune measures the noise scale at the "
        "start of the training. It usually grows later, so larger batches may help more than this."
    )
    return [page.paragraph(text)]


def _verified(document: Document) -> list[str]:
    found = document.get("verified")
    if not found:
        return []
    word, tone = ("Retained", "good") if found["retained"] else ("Not retained", "bad")
    return [
        page.section(
            "Verified",
            page.banner(word, page.sentence(found["sentence"]), tone),
            page.table(
                ["seed", "one replica, original", f"{found['replicas']} replicas, as advised"],
                [
                    (str(seed), f"{one:.4f}", f"{many:.4f}")
                    for seed, one, many in zip(
                        found["seeds"], found["one"], found["many"], strict=True
                    )
                ],
            ),
        )
    ]
