"""A masked mean per rank: ranks with few valid tokens weigh as much as ranks with many."""

from __future__ import annotations

import re
from collections.abc import Iterator

import libcst as cst

from lockstep.doctor.findings import Found
from lockstep.source.loss import feeding, loss_of
from lockstep.source.script import Script
from lockstep.source.training import Training
from lockstep.source.training_loops import training_loops
from lockstep.source.tree import argument, constant, walk_shallow

_ENTROPIES = re.compile(
    r"torch\.nn\.(functional\.(cross_entropy|nll_loss)|CrossEntropyLoss|NLLLoss)$"
)
_PADDED = re.compile(r"pad_sequence|pad_token|pad_id|pad_idx|\bPAD\b|padding\s*=|-100|pad_to")
_VALID = re.compile(r"mask|valid|!=|\.ne\(|is_pad|not_pad|non_pad|token|weight", re.I)
_FIXED = re.compile(r"mask_ratio|masking_ratio|len_keep|num_masked|register_comm_hook|group_texts")
"""Code that masks equally many places in each sample or fills blocks, or averages gradients."""
_ONE_EACH = re.compile(r"position|next_sentence|\bstart|\bend|is_next", re.I)
"""Targets of which each sample has one: nothing is padded."""
_SHARED = re.compile(r"tok|mask|valid|denom|weight|norm|num|count|\bn_", re.I)
_FILLED = re.compile(
    r"full(_like)?\(.*-1\s*[,)]|\]\s*=\s*-1\b|fill_?\([^)]*-1\s*\)|value\s*=\s*-1\b|"
    r"\[-1\]\s*\*|\*\s*-1\b"
)
"""Code that marks places with -1, which many models ignore although no program marks any."""
_SHORT = re.compile(r"\.sum\(\)|\.count_nonzero\(\)|(torch\.)(sum|count_nonzero)\([^,]*\)")


def look(training: Training) -> Iterator[Found]:
    """Find divisions by one rank's count of valid places on the way to backward."""
    if any(_FIXED.search(script.text) for script in training.project.scripts):
        return
    padded = any(_PADDED.search(script.text) for script in training.project.scripts)
    for script, loop, found in training_loops(training):
        if any(act.loops for act in found if act.kind == "backward"):
            continue
        if _shares(training, script, loop.body):
            continue
        for act in (act for act in found if act.kind == "backward"):
            loss = loss_of(act.call)
            for where, node in feeding(training, act.script, loss) if loss is not None else ():
                if _is_masked_mean(training, where, node):
                    reason = "each rank divides by its own number of valid places"
                elif padded and _is_padded_entropy(training, where, node):
                    reason = "each rank averages over its own tokens, without the padding"
                else:
                    continue
                below = where.code(node.right) if isinstance(node, cst.BinaryOperation) else ""
                if (
                    not _has_no_grad(where, node)
                    and not _shares(training, where, where.function_of(node))
                    and not _reduced(where, node, below)
                ):
                    yield Found(where, node, f"{reason}, yet all ranks weigh the same", False)


def _has_no_grad(script: Script, node: cst.CSTNode) -> bool:
    """Return whether the value only shifts or scales the loss, such as rewards with mean 0."""
    blocks = (parent for parent in script.above(node) if isinstance(parent, cst.With))
    return any("no_grad" in script.code(item) for block in blocks for item in block.items)


def _is_masked_mean(training: Training, script: Script, node: cst.CSTNode) -> bool:
    """Match `(loss * mask).sum() / mask.sum()`; sum() with a dimension is a mean per sample."""
    if not isinstance(node, cst.BinaryOperation) or not isinstance(node.operator, cst.Divide):
        return False
    above = [script.code(o.node) for o in training.project.origins(script, node.left)]
    below = [script.code(o.node) for o in training.project.origins(script, node.right)]
    summed = all(_SHORT.search(t) or re.search(r"reduction\s*=\s*.sum", t) for t in above)
    return summed and all(_SHORT.search(text) and _VALID.search(text) for text in below)


def _is_padded_entropy(training: Training, script: Script, node: cst.CSTNode) -> bool:
    """Match a mean cross entropy that ignores places; 255 is a label for pixels, not padding."""
    if not isinstance(node, cst.Call):
        return False
    for _, call, name in training.project.made(script, node):
        ignored = argument(call, "ignore_index")
        # Report the line that computes the loss, not the line that creates its module.
        computes = name.endswith("Loss") != (call is node)
        target = argument(node, "target", 1)
        if target is not None and _ONE_EACH.search(script.code(target)):
            continue
        if _ENTROPIES.match(name) and computes and _ignores(training, ignored):
            reduction = argument(call, "reduction")
            return reduction is None or constant(reduction) == "mean"
    return False


def _ignores(training: Training, ignored: cst.BaseExpression | None) -> bool:
    """Return whether the number that is ignored may mark padding, and not only unknown pixels."""
    if ignored is None or constant(ignored) == 255:
        return False
    return constant(ignored) != -1 or any(
        _FILLED.search(other.text) for other in training.project.scripts
    )


def _reduced(script: Script, node: cst.CSTNode, name: str) -> bool:
    """Return whether the divisor is summed over the ranks, under any name."""
    body = script.function_of(node) or script.tree
    call = rf"all_?reduce(_?sum)?\(\s*{re.escape(name)}\s*[,)]"
    return name.isidentifier() and re.search(call, script.code(body)) is not None


def _shares(training: Training, script: Script, body: cst.CSTNode | None) -> bool:
    """Return whether the ranks exchange a count here."""
    if body is None:
        return False

    def tells(where: Script, node: cst.CSTNode) -> bool:
        if not isinstance(node, cst.Call) or not node.args:
            return False
        last = where.code(node.func).rsplit(".", 1)[-1]
        collective = re.search(r"all_?reduce|all_?gather|reduce_sum|reduce_mean", last)
        return collective is not None and _SHARED.search(where.code(node.args[0])) is not None

    below = body.body if isinstance(body, cst.FunctionDef) else body
    return training.project.reaches(script, below, tells) or any(
        tells(script, node) for node in walk_shallow(below)
    )
