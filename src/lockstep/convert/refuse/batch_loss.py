"""Refuse losses across the batch: a replica would compare its samples with fewer others."""

from __future__ import annotations

import re
from collections.abc import Iterator

import libcst as cst

from lockstep.convert.analysis.blocks import bindings_of, receiver
from lockstep.convert.analysis.losses import losses
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
_DIAGONAL = re.compile(r"diag|\beye\(|triu|tril", re.I)
# A plain `- torch.eye(n)` asks for orthogonal weights, not for pairs of the batch.
_LEFT_OUT = re.compile(r"diag|~\s*torch\.eye|eye\([^\n]*bool|eye\([^\n]*masked_fill", re.I)
_ENTROPY = re.compile(r"cross_entropy|CrossEntropy|log_softmax|LogSoftmax|logsumexp|nll_loss")
_SOFTMAX = re.compile(r"softmax|sigmoid|cross_entropy|CrossEntropy|logsumexp|\bexp\(", re.I)
_UNBIASED = re.compile(r"/\s*\([^()]*(\([^()]*\))?[^()]*-\s*1\)")
"""A division by n - 1: a covariance."""
_FIXED = re.compile(
    r"arange|linspace|range\(|Parameter\(|parameters\(|register_buffer|weight|meshgrid"
)
"""Positions and weights, which are not part of the batch."""
_AROUND = {"expand", "repeat", "float", "contiguous", "detach", "long", "expand_as", "to", "bool"}
_DIFFERS = "torch.eq", "torch.ne", "torch.sub", "torch.nn.functional.cosine_similarity"
_OWN = -2
"""In place of an axis: the tensor itself; `_TURNED` stands for its transpose."""
_TURNED = -3


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


def compares_all(training: Training, script: Script, node: cst.CSTNode) -> bool:
    """Return whether an expression compares all pairs of the batch."""
    return (
        _is_outer(training, script, node)
        or _multiplies(training, script, node)
        or _has_all_distances(training, script, node)
        or _sums_in_order(script, node)
    )


def _is_outer(training: Training, script: Script, node: cst.CSTNode) -> bool:
    """Return whether a node is `y[:, None] == y[None]` or `x.unsqueeze(0) - x.unsqueeze(1)`."""
    sides = _sides(training, script, node)
    if sides is None:
        return False
    named = [_resolved(training, script, side) for side in sides]
    for one, other in (sides, named):
        (left, here), (right, there) = _axis(one), _axis(other)
        outer = {here, there} in ({0, 1}, {0, -1}, {_OWN, _TURNED})
        if outer and code(left) == code(right) and not _is_fixed(training, script, left):
            return True
    return False


def _resolved(training: Training, script: Script, node: cst.CSTNode) -> cst.CSTNode:
    """Return the expression behind a name, if there is exactly one."""
    if not isinstance(node, cst.Name):
        return node
    origins = training.project.origins(script, node)
    return origins[0].node if len(origins) == 1 and origins[0].script is script else node


def _sides(
    training: Training, script: Script, node: cst.CSTNode
) -> tuple[cst.CSTNode, cst.CSTNode] | None:
    if isinstance(node, cst.Comparison) and len(node.comparisons) == 1:
        if isinstance(node.comparisons[0].operator, cst.Equal | cst.NotEqual):
            return node.left, node.comparisons[0].comparator
    elif isinstance(node, cst.BinaryOperation) and isinstance(node.operator, cst.Subtract):
        return node.left, node.right
    if not isinstance(node, cst.Call):
        return None
    if isinstance(node.func, cst.Attribute) and len(node.args) == 1:
        left = receiver(node, "eq", "ne", "sub")
        return (left, node.args[0].value) if left is not None else None
    if len(node.args) >= 2:
        name = training.project.name(script, node.func)
        made = [o.call for o in training.project.origins(script, node.func) if o.call]
        cosine = any((dotted(c.func) or "").endswith("CosineSimilarity") for c in made)
        if name in _DIFFERS or cosine:
            return node.args[0].value, node.args[1].value
    return None


def _axis(node: cst.CSTNode) -> tuple[cst.CSTNode, int]:
    """Return a tensor without its new axis, and the place of that axis."""
    axis = _OWN
    while True:
        if isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute):
            kind, given = node.func.attr.value, [constant(a.value) for a in node.args]
            if kind == "unsqueeze" and given[:1] and isinstance(given[0], int):
                axis = given[0]
            elif kind in ("view", "reshape") and len(given) == 2 and 1 in given:
                axis = given.index(1)
            elif kind == "t" or (kind == "transpose" and set(given) == {0, 1}):
                axis = _TURNED
            elif kind not in _AROUND:
                return node, axis
            node = node.func.value
        elif isinstance(node, cst.Attribute) and node.attr.value in ("T", "mT"):
            node, axis = node.value, _TURNED
        elif isinstance(node, cst.Subscript) and _new_axis(node) is not None:
            axis = _new_axis(node) or 0
            node = node.value
        else:
            return node, axis


def _new_axis(node: cst.Subscript) -> int | None:
    """Return the place of `None` in `x[:, None]`."""
    texts = [code(element.slice) for element in node.slice]
    if any(text not in (":", "None", "...", "np.newaxis") for text in texts):
        return None
    found = [number for number, text in enumerate(texts) if text in ("None", "np.newaxis")]
    return found[0] if len(found) == 1 else None


def _is_fixed(training: Training, script: Script, node: cst.CSTNode) -> bool:
    """Return whether a value is not part of the batch."""
    texts = [o.script.code(o.node) for o in training.project.origins(script, node)]
    texts += [code(b.value) for b in bindings_of(script, node) if b.kind == "loop" and b.value]
    return any(_FIXED.search(text) for text in [code(node), *texts])


def _multiplies(training: Training, script: Script, node: cst.CSTNode) -> bool:
    """Return whether a loss multiplies samples of the batch with each other.

    `a @ b.T` compares samples: with its diagonal picked, with itself without its diagonal, or in a
    cross entropy. `a.T @ b` correlates features, as Barlow Twins does.
    """
    sides = _factors(training, script, node)
    if sides is None or any(_is_fixed(training, script, _axis(side)[0]) for side in sides):
        return False
    (left, one), (right, other) = _axis(sides[0]), _axis(sides[1])
    text = script.code(script.function_of(node) or script.tree)
    if one == _TURNED and other != _TURNED:
        return _DIAGONAL.search(text) is not None or _UNBIASED.search(text) is not None
    if other != _TURNED or one == _TURNED:
        return False
    if code(left) == code(right):
        return _LEFT_OUT.search(text) is not None or _ENTROPY.search(text) is not None
    return _DIAGONAL.search(text) is not None and _SOFTMAX.search(text) is not None


def _factors(
    training: Training, script: Script, node: cst.CSTNode
) -> tuple[cst.CSTNode, cst.CSTNode] | None:
    if isinstance(node, cst.BinaryOperation) and isinstance(node.operator, cst.MatrixMultiply):
        return node.left, node.right
    if isinstance(node, cst.Call):
        name = training.project.name(script, node.func) or ""
        if name in ("torch.mm", "torch.matmul") and len(node.args) == 2:
            return node.args[0].value, node.args[1].value
        if name == "torch.einsum" and len(node.args) == 3:
            return _summed(node)
        left = receiver(node, "mm", "matmul")
        if left is not None and len(node.args) == 1:
            return left, node.args[0].value
    return None


def _has_all_distances(training: Training, script: Script, node: cst.CSTNode) -> bool:
    """Return whether a loss calls `torch.cdist(x, x)` or `F.pdist(x)`; layers use it per sample."""
    if not isinstance(node, cst.Call) or not node.args:
        return False
    name = training.project.name(script, node.func)
    same = len(node.args) > 1 and code(node.args[0].value) == code(node.args[1].value)
    if name not in ("torch.nn.functional.pdist", "torch.pdist") and not (
        name == "torch.cdist" and same
    ):
        return False
    owner = script.class_of(node)
    return owner is None or not any(
        re.match(r"torch\.nn\.(?!Module)", training.project.name(script, n.func) or "")
        for n in walk(owner)
        if isinstance(n, cst.Call) and n in script.order
    )


def _summed(call: cst.Call) -> tuple[cst.CSTNode, cst.CSTNode] | None:
    """Return a and b.T, for `einsum("id,jd->ij", a, b)`."""
    text = constant(call.args[0].value)
    if not re.fullmatch(r"(\w)(\w),(\w)\2->\1\3", str(text).replace(" ", "")):
        return None
    return call.args[1].value, cst.Attribute(call.args[2].value, cst.Name("T"))


def _sums_in_order(script: Script, node: cst.CSTNode) -> bool:
    """Return whether a call sums over the sorted batch, as partial likelihoods and rankings do."""
    if not isinstance(node, cst.Call):
        return False
    last = code(node.func).rsplit(".", 1)[-1]
    named = [arg for arg in node.args if arg.keyword is None or arg.keyword.value == "dim"]
    function = script.function_of(node)
    return (
        last in ("cumsum", "logcumsumexp")
        and 0 in [constant(arg.value) for arg in named]
        and function is not None
        and "sort(" in script.code(function)
    )
