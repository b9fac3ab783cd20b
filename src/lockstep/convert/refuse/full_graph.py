"""Refuse training on all data in one batch: a graph, or all rows of a table, in every step."""

from __future__ import annotations

from collections.abc import Iterator

from lockstep.convert.analysis.losses import losses
from lockstep.convert.analysis.unchanging_values import Turns
from lockstep.convert.refuse import Refusal, Stage
from lockstep.source.training import Training

ORDER = Stage.METHOD, 80
_ADVICE = (
    "If the samples are independent rows, put them into a TensorDataset and a DataLoader with "
    "batches. The nodes of a graph are not independent: keep it on one GPU, or sample subgraphs."
)


def look(training: Training) -> Iterator[Refusal]:
    """Find losses made of the same tensors in every turn, if all losses are."""
    found = []
    for loss in losses(training):
        turns = Turns(training, loss.script, loss.backward)
        if not turns.loops or turns.change(loss.script, loss.value):
            return
        inner = [place for place in turns.models if place[1].args]
        found.append((inner or [(loss.script, loss.backward)])[-1])
    for script, node in found[:1]:
        yield Refusal(
            script,
            node,
            "every step sees the same tensors, all the data at once, so there is no batch to "
            "divide among replicas",
            _ADVICE,
        )
