"""Every rank saves: N processes write one file at the same time."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from lockstep.doctor.findings import Found, Rule
from lockstep.source.training import Training, asks_rank


def look(training: Training) -> Iterator[Found]:
    """torch.save to a path without the rank in it, where every rank comes by."""
    for script, call in training.named("torch.save", "safetensors.torch.save_file"):
        path = call.args[1].value if len(call.args) > 1 else None
        if path is None or training.guarded(script, call):
            continue
        # A file for each rank.
        texts = [o.node for o in training.project.origins(script, path)]
        if asks_rank(path) or any(asks_rank(node) for node in texts if _is_text(node)):
            continue
        yield Found(script, call, "every rank writes this file, at the same time")


def _is_text(node: cst.CSTNode) -> bool:
    return not isinstance(node, cst.Name | cst.Attribute)


RULE = Rule(
    name="every_rank_saves",
    code="LS25",
    summary="Several processes that write one file may leave a damaged one.",
    advice="Save on rank 0 only: if dist.get_rank() == 0.",
    look=look,
    handled_by=frozenset({"Lightning", "Hugging Face Trainer"}),
)
