"""Tables of a bench's result: for a terminal, and in Markdown for a README."""

from __future__ import annotations

from typing import Any

from lockstep.bench import machine


def columns(work: dict[str, Any]) -> list[str]:
    """Return the column heads of a work's table."""
    return ["", "replicas", "samples/s", "peak MiB", f"{work['base']} is"]


def rows(work: dict[str, Any]) -> list[list[str]]:
    """Return one row per side."""
    return [_row(name, side, work["base"]) for name, side in work["sides"].items()]


def _row(name: str, side: dict[str, Any], base: str) -> list[str]:
    path = f", {side['path']}" if side["path"] else ""
    start = [name, f"{side['replicas']} x {side['precision']}{path}"]
    if side["error"] is not None:
        return [*start, "failed", "", side["error"]]
    rate, memory = side["rate"], side["peak_memory_bytes"]
    ratio = "{median:.2f}x ({min:.2f} - {max:.2f})"
    said = "" if name == base or side["ratio"] is None else ratio.format(**side["ratio"])
    return [*start, f"{rate['median']:,.0f}", f"{memory / 2**20:,.0f}", said]


def markdown(document: dict[str, Any]) -> str:
    """Return one table of all works, under the machine's name and the command."""
    named = machine.name(document["machine"], document["device"])
    lines = [f"{named}. Median and range of {document['rounds']} alternating rounds:"]
    lines += [f"`{document['command']}`", ""]
    heads = ["work", "side", *columns(document["works"][0])[1:]]
    lines += [_line(heads), _line(["---"] * len(heads))]
    for work in document["works"]:
        for number, row in enumerate(rows(work)):
            lines.append(_line([work["sentence"] if number == 0 else "", *row]))
    return "\n".join(lines)


def _line(cells: list[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
