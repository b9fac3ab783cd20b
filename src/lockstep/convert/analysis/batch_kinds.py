"""Tell what a value is over the batch: a mean, a sum, made of weights only, or unknown."""

from __future__ import annotations

import re

import libcst as cst

from lockstep.convert.work import Work
from lockstep.source.models import inner_call
from lockstep.source.script import Script
from lockstep.source.training_loops import called
from lockstep.source.tree import EACH, argument, constant, dotted, parts, returned, walk

_LOSS = re.compile(
    r"torch\.nn\.(functional\.\w*(loss|cross_entropy|entropy|kl_div)\w*|\w*Loss\w*)$"
)
SIZE = re.compile(r"\.size\(0\)|\.shape\[0\]|\blen\(|\.numel\(\)|batch_?len")
_PENALTY = re.compile(r"param|\.weight\b|\bweights?\.(abs|pow|square|norm)")
MEAN, SUM, WEIGHTS, UNKNOWN = "mean", "sum", "weights", "unknown"
MASKED = "masked"
"""A mean over labelled items or by weights; each process has another number of them."""
DEEPEST = 30
_SAME = "item", "to", "float", "cuda", "squeeze", "view", "clamp", "scale", "detach"


def kinds(
    work: Work, script: Script, node: cst.CSTNode, depth: int, seen: set[cst.CSTNode]
) -> set[str]:
    """Return what a value is over the batch: MEAN, SUM, WEIGHTS, UNKNOWN or several of them."""
    if node in seen or depth > DEEPEST:
        return set()
    seen.add(node)

    def of(part: cst.CSTNode, where: Script = script) -> set[str]:
        return kinds(work, where, part, depth + 1, seen)

    if isinstance(node, cst.BinaryOperation):
        if isinstance(node.operator, cst.Add | cst.Subtract):
            return of(node.left) | of(node.right)
        left = of(node.left)
        if isinstance(node.operator, cst.Divide):
            if SUM in left and SIZE.search(script.code(node.right)):
                return (left - {SUM}) | {MEAN}
            if left == {SUM} and of(node.right) == {SUM}:
                # `(losses * mask).sum() / mask.sum()`
                return {MEAN, MASKED}
            return left
        if isinstance(node.operator, cst.Multiply):
            known = {MEAN, SUM}
            right = of(node.right)
            return left if left & known else right if right & known else left | right
        return left
    if isinstance(node, cst.UnaryOperation):
        return of(node.expression)
    if isinstance(node, cst.Integer | cst.Float):
        return set()
    if isinstance(node, cst.Call):
        return _of_call(work, script, node, depth, seen)
    if isinstance(node, cst.Name | cst.Attribute) and dotted(node) and node in script.order:
        found: set[str] = set()
        origins = [o for o in work.parts.project.origins(script, node) if o.node is not node]
        if origins and all(origin.node in seen for origin in origins):
            # `loss = loss.item()`
            return set()
        for origin in origins:
            if origin.index and isinstance(origin.node, cst.Call):
                found |= _of_parts(work, origin.script, origin.node, origin.index, depth, seen)
            elif not origin.index:
                found |= of(origin.node, origin.script)
        scope = script.scope_of(node).find(dotted(node) or "")
        for binding in scope[1] if scope else ():
            if binding.kind == "augment" and binding.value is not None:
                found |= of(binding.value)
        return found or {UNKNOWN}
    return {UNKNOWN}


def _of_call(
    work: Work, script: Script, call: cst.Call, depth: int, seen: set[cst.CSTNode]
) -> set[str]:
    last = call.func.attr.value if isinstance(call.func, cst.Attribute) else dotted(call.func) or ""
    if last == "mean":
        return {MEAN}
    if last == "sum":
        if _is_penalty(script, call):
            return {WEIGHTS}
        if not isinstance(call.func, cst.Attribute):
            # Python's sum adds up terms: `sum(losses.values())`.
            return _of_terms(work, script, call, depth, seen)
        inner = call.func.value
        made = _of_criterion(work, script, inner) if isinstance(inner, cst.Call) else None
        # The sum of a single number is that number: `criterion(x, y).sum()`.
        return made if made == {MEAN} else {SUM}
    given = [arg.value for arg in call.args]
    if given and all(work.parts.is_model(script, value) is not None for value in given):
        # `orthogonality(net)`: a function of models only.
        return {WEIGHTS}
    if last in _SAME and isinstance(call.func, cst.Attribute):
        return kinds(work, script, call.func.value, depth + 1, seen)
    made = _of_criterion(work, script, call)
    if made is not None:
        return made
    found: set[str] = set()
    for where, function in called(work.parts.training, script, call):
        for result in returned(function):
            if result is not None and not isinstance(result, cst.Tuple):
                found |= kinds(work, where, result, depth + 1, seen)
    return found or {UNKNOWN}


def criterion(work: Work, script: Script, call: cst.Call) -> tuple[Script, cst.Call] | None:
    """Return the call whose arguments set the reduction: the loss, or the call that made it."""
    project = work.parts.project
    name = project.name(script, call.func) or ""
    if _LOSS.match(name):
        return (script, call) if "functional" in name else None
    for origin in project.origins(script, call.func):
        made = origin.call
        while made is not None:
            if _LOSS.match(project.name(origin.script, made.func) or ""):
                return origin.script, made
            # `nn.CrossEntropyLoss().cuda()`
            made = inner_call(made)
    return None


def _of_criterion(work: Work, script: Script, call: cst.Call) -> set[str] | None:
    """Return what a loss of torch is over the batch, or None for other calls."""
    made = criterion(work, script, call)
    return _reduction(work, *made) if made is not None else None


def _of_terms(
    work: Work, script: Script, call: cst.Call, depth: int, seen: set[cst.CSTNode]
) -> set[str]:
    """Return what the terms of `sum(loss for loss in losses.values())` are."""
    if not call.args:
        return {UNKNOWN}
    given: cst.BaseExpression = call.args[0].value
    if isinstance(given, cst.GeneratorExp | cst.ListComp):
        if dotted(given.elt) is None or dotted(given.elt) != dotted(given.for_in.target):
            return kinds(work, script, given.elt, depth + 1, seen)
        given = given.for_in.iter
    if isinstance(given, cst.Call) and isinstance(given.func, cst.Attribute):
        given = given.func.value
    held: list[tuple[Script, cst.CSTNode]] = []
    for origin in work.parts.project.origins(script, given):
        held.append((origin.script, origin.node))
        if origin.call is not None:
            for where, function in called(work.parts.training, origin.script, origin.call):
                held += [(where, result) for result in returned(function) if result is not None]
    terms: list[tuple[Script, cst.CSTNode]] = []
    for where, node in held:
        terms += [(where, part) for part in parts(node, EACH)]
    for binding in script.scope_of(given).put(dotted(given) or ""):
        if binding.value is not None:
            terms.append((script, binding.value))
    found: set[str] = set()
    for where, part in terms:
        found |= kinds(work, where, part, depth + 1, seen)
    return found or {UNKNOWN}


def _is_penalty(script: Script, call: cst.Call) -> bool:
    """Return whether a sum is over weights: `for p in net.parameters(): total += p.abs().sum()`."""
    texts = [script.code(call)]
    for name in (part for part in walk(call) if isinstance(part, cst.Name)):
        found = script.scope_of(name).find(name.value)
        loops = [b.node for b in found[1] if b.kind == "loop"] if found else []
        texts += [script.code(loop.iter) for loop in loops if isinstance(loop, cst.For)]
    return any(_PENALTY.search(text) for text in texts)


def _of_parts(
    work: Work,
    script: Script,
    call: cst.Call,
    index: tuple[int | str, ...],
    depth: int,
    seen: set[cst.CSTNode],
) -> set[str]:
    """Return what the part of a result is that an index takes, as in `_, loss = model(x, y)`."""
    found: set[str] = set()
    for where, function in called(work.parts.training, script, call):
        for result in returned(function):
            if (
                isinstance(result, cst.Tuple)
                and isinstance(index[0], int)
                and index[0] < len(result.elements)
            ):
                part = result.elements[index[0]].value
                if constant(part) is not None:
                    found |= kinds(work, where, part, depth + 1, seen)
    return found or {UNKNOWN}


def _reduction(work: Work, script: Script, call: cst.Call) -> set[str]:
    given = argument(call, "reduction")
    if given is not None:
        values = {constant(o.node) for o in work.parts.project.origins(script, given)}
        return (
            {MEAN} if values <= {"mean", "batchmean"} else {SUM} if values == {"sum"} else {UNKNOWN}
        )
    name = script.code(call.func).lower()
    if re.search(r"cross_?entropy|nll", name):
        counted = [argument(call, option) for option in ("ignore_index", "weight")]
        if any(value is not None and constant(value) is not None for value in counted):
            return {MEAN, MASKED}
    average = argument(call, "size_average")
    return {SUM} if average is not None and constant(average) is False else {MEAN}
