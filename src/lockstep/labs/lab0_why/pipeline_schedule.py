"""The schedule of a pipeline: when each stage works and when it waits."""

from __future__ import annotations

from typing import Any, NamedTuple


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
