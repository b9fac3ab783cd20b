"""A loss across the batch compares only one rank's samples: N ranks have fewer negatives."""

from __future__ import annotations

import re
from collections.abc import Iterator

import libcst as cst

from lockstep.doctor.findings import Found
from lockstep.source.loss import feeding, loss_of
from lockstep.source.script import Script
from lockstep.source.training import Training
from lockstep.source.training_loops import acts, called, training_loops
from lockstep.source.tree import argument, walk

_GATHERS = re.compile(
    r"all_?gather|gather_?(from|all|layer|feat|embed|tensor|with|across|distributed)|SyncFunction",
    re.I,
)
_TRANSPOSED = re.compile(r"(\.T|\.mT|\.t\(\)|\.transpose\((0, ?1|1, ?0)\))$")
_PRODUCTS = "torch.matmul", "torch.mm"
# A plain `- torch.eye(n)` makes weights orthogonal: it is no loss across the batch.
_DIAGONAL = re.compile(
    r"fill_diagonal_|\.diagonal\(|torch\.diag|~\s*torch\.eye|eye\(.*bool|eye\((.|\n)*masked_fill"
)
_SOFTMAX = re.compile(r"cross_entropy|CrossEntropyLoss|logsumexp|log_softmax|\.exp\(|torch\.exp\(")


def look(training: Training) -> Iterator[Found]:
    """Find losses over similarities within a batch where nothing gathers the features."""
    for script, loop, found in training_loops(training):
        backwards = [act for act in found if act.kind == "backward" and not act.loops]
        if not backwards or _gathers(training, script, loop.body):
            continue
        for act in backwards:
            loss = loss_of(act.call)
            parts = list(feeding(training, act.script, loss)) if loss is not None else []
            for where, node in sorted(parts, key=lambda part: part[0].order[part[1]]):
                if _targets_the_batch(training, where, node) or _contrasts(where, node):
                    reason = "each sample is compared only with the samples of its own rank"
                    yield Found(where, node, reason, certain=False)
                    break


def _targets_the_batch(training: Training, script: Script, node: cst.CSTNode) -> bool:
    """Match a cross entropy with targets 0, 1, 2, ...: each sample's target is its own position."""
    if not isinstance(node, cst.Call):
        return False
    names = [name for _, _, name in training.project.made(script, node)]
    if not any(name.endswith((".cross_entropy", ".CrossEntropyLoss")) for name in names):
        return False
    target = argument(node, "target", 1)
    origins = training.project.origins(script, target) if target is not None else []
    texts = [origin.script.code(origin.node) for origin in origins]
    return any("arange(" in text and "rank" not in text for text in texts)


def _contrasts(script: Script, node: cst.CSTNode) -> bool:
    """Match `z @ z.T` with its diagonal masked or selected, and a softmax, in one function."""
    function = script.function_of(node)
    if function is None or not _is_similarity(script, node):
        return False
    text = script.code(function)
    return _DIAGONAL.search(text) is not None and _SOFTMAX.search(text) is not None


def _is_similarity(script: Script, node: cst.CSTNode) -> bool:
    if isinstance(node, cst.BinaryOperation) and isinstance(node.operator, cst.MatrixMultiply):
        code = script.code(node.right)
    elif isinstance(node, cst.Call) and script.code(node.func) in _PRODUCTS and node.args[1:]:
        code = script.code(node.args[1].value)
    else:
        return False
    return _TRANSPOSED.search(code) is not None and "weight" not in code


def _gathers(training: Training, script: Script, body: cst.CSTNode) -> bool:
    """Return whether a turn of the loop collects features of other ranks."""

    def kind(where: Script, call: cst.Call) -> str | None:
        if _GATHERS.search(where.code(call.func)):
            return "gather"
        for other, function in called(training, where, call):
            owner = other.class_of(function) or function
            names = (other.code(n.func) for n in walk(owner) if isinstance(n, cst.Call))
            if any(_GATHERS.search(name) for name in names):
                return "gather"
        return None

    return any(act.kind == "gather" for act in acts(training, script, body, kind))
