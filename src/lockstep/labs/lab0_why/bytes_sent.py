"""The bytes that data and model parallelism send, and the schedule of a pipeline.

There are as many gradients as parameters, whatever the batch. The activations at a cut are the
batch times the width, however deep the model.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, NamedTuple

from lockstep.labs.lab0_why.parallelism import DATA, HIDDEN, MODEL, ONE, Ways
from lockstep.labs.shared.digits import CLASSES, PIXELS
from lockstep.labs.shared.drawing import axes, dots, line
from lockstep.report.page import BLUE, GREEN, ORANGE, PURPLE

WIDTHS = (32, 64, 128, 256, 512, 1024, 2048, 4096)
BATCHES = tuple(2**n for n in range(3, 17))
FLOAT = 4
PARTS = ("parameters", "gradients", "optimizer", "activations")
COLUMNS = ("measured here", ONE, DATA, MODEL)


def parameters(width: int) -> int:
    """Return the number of parameters of the measured perceptron.

    >>> parameters(512)
    1089034
    """
    sizes = (PIXELS, *[width] * HIDDEN, CLASSES)
    return sum(i * o + o for i, o in pairwise(sizes))


def gradient_bytes(width: int, processes: int = 2) -> int:
    """Return the bytes that a process sends per step to exchange gradients in a ring."""
    return FLOAT * parameters(width) * 2 * (processes - 1) // processes


def activation_bytes(width: int, batch: int) -> int:
    """Return the bytes that a process sends per step: activations or their gradients."""
    return FLOAT * batch * width


def even_batch(width: int) -> float:
    """Return the batch at which both ways send the same."""
    return gradient_bytes(width) / activation_bytes(width, 1)


def figure(found: Ways, width: int, batch: int, micro_batches: int) -> dict[str, Any]:
    """Draw the bytes of both ways over the batch, and below it the schedule of two stages."""
    x = list(BATCHES)
    ends = [x[0], x[-1]]
    gradients = gradient_bytes(width)
    activations = [activation_bytes(width, size) for size in x]
    here = activation_bytes(width, batch)
    data = [
        line("gradients", ends, [gradients] * 2, BLUE, width=2),
        line("activations", x, activations, ORANGE, width=2),
        dots("this batch", [batch] * 2, [gradients, here], PURPLE, symbol="circle-open", size=14),
        _measured(found, width, DATA, BLUE) | {"name": "measured"},
        _measured(found, width, MODEL, ORANGE) | {"showlegend": False},
    ]
    blocks = schedule(2, micro_batches)
    data += [lane(blocks, False, GREEN), lane(blocks, True, PURPLE)]
    layout = axes(
        "batch (samples)",
        "bytes sent per step",
        x_axis={"type": "log", "domain": [0, 1], "anchor": "y", "dtick": 1},
        y_axis={"type": "log", "domain": [0.36, 1.0], "tickformat": ".1s", "dtick": 1},
        barmode="overlay",
    )
    time = {"title": {"text": "time (a step of one process = 1)"}, "range": [0, 1.02]}
    layout["xaxis2"] = time | {"anchor": "y2"}
    layout["yaxis2"] = {"domain": [0.0, 0.16], "autorange": "reversed", "title": {"text": ""}}
    return {"data": data, "layout": layout, "note": _note(width, batch, micro_batches, blocks)}


def _note(width: int, batch: int, micro_batches: int, blocks: list[Block]) -> str:
    gradients, activations = gradient_bytes(width), activation_bytes(width, batch)
    less, other = (
        (("data", gradients), ("model", activations))
        if gradients < activations
        else (("model", activations), ("data", gradients))
    )
    return (
        f"{parameters(width):,} parameters, batch {batch:,}: {less[0]} parallelism sends "
        f"{spoken(less[1])}, {other[0]} parallelism {spoken(other[1])}, "
        f"{other[1] / less[1]:.1f} times as much. "
        f"Both send the same at a batch of {even_batch(width):,.0f}.\n"
        f"{micro_batches} micro-batch{'es' if micro_batches > 1 else ''}: a stage waits "
        f"{idle(blocks):.0%} of the time. The bytes are the same, in more messages."
    )


def spoken(number: float) -> str:
    """Format a number of bytes.

    >>> spoken(512), spoken(2_097_152), spoken(45_000)
    ('512 B', '2.1 MB', '45 kB')
    """
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if number >= size:
            return f"{number / size:.3g} {unit}"
    return f"{number:.0f} B"


def rows(found: Ways, width: int, batch: int) -> list[list[str]]:
    """Return the rows of the table for one width and batch, with a column for each way.

    Of two processes, show the one that sends or keeps more.
    """
    ways = [found.row(width, batch, way) for way in (ONE, DATA, MODEL)]

    def cells(name: str, *values: str) -> list[str]:
        return [name, *(value or "-" for value in values)]

    return [
        cells("sent per step", *(spoken(max(w["sent"])) if max(w["sent"]) else "" for w in ways)),
        cells("in messages", *(str(max(w["messages"]) or "") for w in ways)),
        *(cells(part, *(spoken(max(w[part])) for w in ways)) for part in PARTS),
        cells("total memory", *(spoken(max(memory(w))) for w in ways)),
        cells("time per step", *(f"{1e3 * w['seconds']:.1f} ms" for w in ways)),
        cells("weights differ by", *(f"{w['differs']:.0e}" if w["differs"] else "" for w in ways)),
    ]


def memory(row: dict[str, Any]) -> list[int]:
    """Return the total bytes that each process keeps."""
    return [sum(kept) for kept in zip(*(row[part] for part in PARTS), strict=True)]


def _measured(found: Ways, width: int, way: str, colour: str) -> dict[str, Any]:
    own = [row for row in found.rows if row["width"] == width and row["way"] == way]
    x, y = [row["batch"] for row in own], [max(row["sent"]) for row in own]
    return dots("measured", x, y, colour, symbol="diamond", size=11, line={"width": 2})


class Block(NamedTuple):
    """The work of one stage on one micro-batch."""

    stage: int
    backward: bool
    start: float
    end: float


def schedule(stages: int, micro_batches: int) -> list[Block]:
    """Return the work of all stages, one forward then one backward; one process would take 1.

    Backward takes twice as long as forward. A stage starts as soon as its input is ready.
    """
    forth = 1.0 / 3.0 / stages / micro_batches
    orders = []
    for stage in range(stages):
        ahead = min(stages - stage - 1, micro_batches)
        rest = micro_batches - ahead
        orders.append([False] * ahead + [False, True] * rest + [True] * ahead)
    blocks: list[Block] = []
    # When each stage finishes its n-th forward and its n-th backward.
    done: list[dict[bool, list[float]]] = [{False: [], True: []} for _ in range(stages)]
    free, at = [0.0] * stages, [0] * stages
    while any(place < len(order) for place, order in zip(at, orders, strict=True)):
        for stage, order in enumerate(orders):
            if at[stage] == len(order):
                continue
            backward = order[at[stage]]
            number = len(done[stage][backward])
            source = stage + 1 if backward else stage - 1
            ready = 0.0
            if 0 <= source < stages:
                if len(done[source][backward]) <= number:
                    continue
                ready = done[source][backward][number]
            start = max(free[stage], ready)
            end = start + forth * (2 if backward else 1)
            blocks.append(Block(stage, backward, start, end))
            free[stage] = end
            done[stage][backward].append(end)
            at[stage] += 1
    return blocks


def idle(blocks: list[Block]) -> float:
    """Return the share of the step that stages wait, over all stages."""
    stages = 1 + max(block.stage for block in blocks)
    length = max(block.end for block in blocks)
    return 1.0 - sum(block.end - block.start for block in blocks) / (stages * length)


def lane(blocks: list[Block], backward: bool, colour: str) -> dict[str, Any]:
    """Draw the bars of one direction on the second axes, a lane for each stage."""
    own = [block for block in blocks if block.backward is backward]
    return {
        "type": "bar",
        "orientation": "h",
        "xaxis": "x2",
        "yaxis": "y2",
        "y": [f"stage {block.stage + 1}" for block in own],
        "base": [round(block.start, 4) for block in own],
        "x": [round(0.98 * (block.end - block.start), 4) for block in own],
        "marker": {"color": colour},
        "name": "backward" if backward else "forward",
        "hoverinfo": "name",
    }
