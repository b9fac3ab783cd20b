"""Refuse losses across the batch: a replica would compare its samples with fewer others."""

from __future__ import annotations

import re
from collections.abc import Iterator

import libcst as cst

from lockstep.convert.analysis.losses import losses
from lockstep.convert.analysis.sample_pairs import compares_all
from lockstep.convert.refuse import Refusal, Stage
from lockstep.doctor.rules import in_batch_loss
from lockstep.source.script import Script
from lockstep.source.training import Training
from lockstep.source.tree import code, constant, dotted, walk

ORDER = Stage.METHOD, 70
_LIBRARIES = re.compile(
    r"pytorch_metric_learning\.(losses\.(?!.*(Face|Softmax|Proxy|Center))|miners\.)"
    r"|lightly\.loss\.(?!NegativeCosine|DINO|MSN)"
    r"|sentence_transformers\.losses\.(\w*MultipleNegatives|Batch)"
    r"|(info_nce|open_clip|cliploss)\.\w*(NCE|Loss|nce)"
)
_ADVICE = (
    "Gather the embeddings of all replicas, with their gradients, before this loss, and check that "
    "the loss still means the same."
)


def look(training: Training) -> Iterator[Refusal]:
    """Find similarities, differences and correlations within the batch that make up a loss."""
    seen = [(found.script, found.node) for found in in_batch_loss.look(training)]
    for loss in losses(training):
        seen += [place for place in loss.parts if _compares(training, *place)]
    for script, node in seen:
        yield Refusal(
            script,
            node,
            "the loss compares each sample with all others of its batch, and a replica would have "
            "only its part of the batch",
            _ADVICE,
        )


def _compares(training: Training, script: Script, node: cst.CSTNode) -> bool:
    return (
        compares_all(training, script, node)
        or _is_queue(script, node)
        or (isinstance(node, cst.Call) and _is_known(training, script, node))
    )


def _is_known(training: Training, script: Script, call: cst.Call) -> bool:
    """Return whether a call is a library's loss over all pairs of the batch."""
    project = training.project
    names = [name for _, _, name in project.makers(script, call.func)]
    return any(_LIBRARIES.match(name) for name in (project.name(script, call.func) or "", *names))


def _is_queue(script: Script, node: cst.CSTNode) -> bool:
    """Return whether a node multiplies with a queue of embeddings from earlier batches."""
    owner = script.class_of(node)
    if isinstance(node, cst.Call):
        product = code(node.func).rsplit(".", 1)[-1] in ("einsum", "mm", "matmul")
    else:
        product = isinstance(node, cst.BinaryOperation)
    if owner is None or not product:
        return False
    kept = {
        name for name, put in script.scopes[owner].items.items() if any(_moves(b.node) for b in put)
    }
    return any(dotted(part) in kept for part in walk(node) if isinstance(part, cst.Attribute))


def _moves(node: cst.CSTNode) -> bool:
    """Return whether each turn writes to another place: `self.queue[:, i : i + n] = keys.T`."""
    target = node.targets[0].target if isinstance(node, cst.Assign) else None
    if not isinstance(target, cst.Subscript):
        return False
    slices = [e.slice for e in target.slice if isinstance(e.slice, cst.Slice)]
    return any(s.lower is not None and constant(s.lower) is ... for s in slices)
