"""Tell what a value is over the batch: a mean, a sum, made of weights only, or unknown."""

from __future__ import annotations

import re

import libcst as cst

from lockstep.convert.analysis.blocks import bindings_of, last_name, receiver
from lockstep.convert.work import Work
from lockstep.source.models import inner_call
from lockstep.source.script import Script
from lockstep.source.training_loops import called
from lockstep.source.tree import EACH, argument, constant, dotted, parts, returned, walk

_LOSS = re.compile(
    r"torch\.nn\.(functional\.\w*(loss|cross_entropy|entropy|kl_div)\w*|\w*Loss\w*)$"
)
SIZE = re.compile(r"\.size\(0\)|\.size\(\)\[0\]|\.shape\[0\]|\blen\(|\.numel\(\)|batch_?len")
_PENALTY = re.compile(r"param|\.weight\b|\bweights?\.(abs|pow|square|norm)")
MEAN, SUM, WEIGHTS, UNKNOWN = "mean", "sum", "weights", "unknown"
MASKED = "masked"
"""A mean over labelled items or by weights; each process has a different number of them."""
DEEPEST = 30
_SAME = "item", "to", "float", "cuda", "squeeze", "view", "clamp", "scale", "detach"


def kinds(work: Work, script: Script, node: cst.CSTNode) -> set[str]:
    """Return what a value is over the batch: MEAN, SUM, WEIGHTS, UNKNOWN or several of them."""
    return _Kinds(work).of(script, node, 0)


def kind_without_mask(work: Work, script: Script, node: cst.CSTNode) -> str:
    """Return what a value is over the batch, masked or not; UNKNOWN if it is not one kind only."""
    found = kinds(work, script, node) - {MASKED}
    return found.pop() if len(found) == 1 else UNKNOWN


class _Kinds:
    """Follows one value; looks at each expression once."""

    def __init__(self, work: Work) -> None:
        self.work, self.project = work, work.project
        self.seen: set[cst.CSTNode] = set()

    def of(self, script: Script, node: cst.CSTNode, depth: int) -> set[str]:
        """Return what an expression is over the batch."""
        if node in self.seen or depth > DEEPEST:
            return set()
        self.seen.add(node)
        depth += 1
        if isinstance(node, cst.BinaryOperation):
            return self._of_operation(script, node, depth)
        if isinstance(node, cst.UnaryOperation):
            return self.of(script, node.expression, depth)
        if isinstance(node, cst.Integer | cst.Float):
            return set()
        if isinstance(node, cst.Call):
            return self._of_call(script, node, depth)
        if isinstance(node, cst.Name | cst.Attribute) and dotted(node) and node in script.order:
            found: set[str] = set()
            origins = [o for o in self.project.origins(script, node) if o.node is not node]
            if origins and all(origin.node in self.seen for origin in origins):
                # `loss = loss.item()`
                return set()
            for origin in origins:
                if origin.index and isinstance(origin.node, cst.Call):
                    found |= self._of_part(origin.script, origin.node, origin.index[0], depth)
                elif not origin.index:
                    found |= self.of(origin.script, origin.node, depth)
            for binding in bindings_of(script, node):
                if binding.kind == "augment" and binding.value is not None:
                    found |= self.of(script, binding.value, depth)
            return found or {UNKNOWN}
        return {UNKNOWN}

    def _of_operation(self, script: Script, node: cst.BinaryOperation, depth: int) -> set[str]:
        left = self.of(script, node.left, depth)
        if isinstance(node.operator, cst.Add | cst.Subtract):
            return left | self.of(script, node.right, depth)
        if isinstance(node.operator, cst.Divide):
            if SUM in left and SIZE.search(script.code(node.right)):
                return (left - {SUM}) | {MEAN}
            if left == {SUM} and self.work.options.ratios and dotted(node.right):
                return {MEAN, MASKED}
            if left == {SUM} and self.of(script, node.right, depth) == {SUM}:
                # `(losses * mask).sum() / mask.sum()`
                return {MEAN, MASKED}
        elif isinstance(node.operator, cst.Multiply):
            known = {MEAN, SUM}
            right = self.of(script, node.right, depth)
            return left if left & known else right if right & known else left | right
        return left

    def _of_call(self, script: Script, call: cst.Call, depth: int) -> set[str]:
        last = last_name(call)
        inner = receiver(call)
        if last == "mean":
            return {MEAN}
        if last == "sum":
            if _is_penalty(script, call):
                return {WEIGHTS}
            if inner is None:
                # Python's sum adds up terms: `sum(losses.values())`.
                return self._of_terms(script, call, depth)
            made = criterion(self.work, script, inner) if isinstance(inner, cst.Call) else None
            # The sum of a single number is that number: `criterion(x, y).sum()`.
            single = made is not None and _reduction(self.work, *made) == {MEAN}
            return {MEAN} if single else {SUM}
        given = [arg.value for arg in call.args]
        if given and all(self.work.parts.is_model(script, value) is not None for value in given):
            # `orthogonality(net)`: a function of models only.
            return {WEIGHTS}
        if last in _SAME and inner is not None:
            return self.of(script, inner, depth)
        made = criterion(self.work, script, call)
        if made is not None:
            return _reduction(self.work, *made)
        found: set[str] = set()
        for where, function in called(self.work.parts.training, script, call):
            for result in returned(function):
                if result is not None and not isinstance(result, cst.Tuple):
                    found |= self.of(where, result, depth)
        return found or {UNKNOWN}

    def _of_terms(self, script: Script, call: cst.Call, depth: int) -> set[str]:
        """Return what the terms of `sum(loss for loss in losses.values())` are."""
        if not call.args:
            return {UNKNOWN}
        given: cst.BaseExpression = call.args[0].value
        if isinstance(given, cst.GeneratorExp | cst.ListComp):
            if dotted(given.elt) is None or dotted(given.elt) != dotted(given.for_in.target):
                return self.of(script, given.elt, depth)
            given = given.for_in.iter
        given = receiver(given) or given
        held: list[tuple[Script, cst.CSTNode]] = []
        for origin in self.project.origins(script, given):
            held.append((origin.script, origin.node))
            if origin.call is not None:
                for where, function in called(self.work.parts.training, origin.script, origin.call):
                    held += [(where, result) for result in returned(function) if result is not None]
        terms: list[tuple[Script, cst.CSTNode]] = []
        for where, node in held:
            terms += [(where, part) for part in parts(node, EACH)]
        for binding in script.scope_of(given).put(dotted(given) or ""):
            if binding.value is not None:
                terms.append((script, binding.value))
        found: set[str] = set()
        for where, part in terms:
            found |= self.of(where, part, depth)
        return found or {UNKNOWN}

    def _of_part(self, script: Script, call: cst.Call, index: int | str, depth: int) -> set[str]:
        """Return what the part of a result is that an index takes: `_, loss = model(x, y)`."""
        found: set[str] = set()
        for where, function in called(self.work.parts.training, script, call):
            for result in returned(function):
                if not isinstance(result, cst.Tuple) or not isinstance(index, int):
                    continue
                if index < len(result.elements):
                    part = result.elements[index].value
                    found |= self.of(where, part, depth) if constant(part) is not None else set()
        return found or {UNKNOWN}


def criterion(work: Work, script: Script, call: cst.Call) -> tuple[Script, cst.Call] | None:
    """Return the call whose arguments set the reduction: the loss, or the call that made it."""
    project = work.project
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


def _is_penalty(script: Script, call: cst.Call) -> bool:
    """Return whether a sum is over weights: `for p in net.parameters(): total += p.abs().sum()`."""
    texts = [script.code(call)]
    for name in (part for part in walk(call) if isinstance(part, cst.Name)):
        loops = [b.node for b in bindings_of(script, name) if b.kind == "loop"]
        texts += [script.code(loop.iter) for loop in loops if isinstance(loop, cst.For)]
    return any(_PENALTY.search(text) for text in texts)


def _reduction(work: Work, script: Script, call: cst.Call) -> set[str]:
    given = argument(call, "reduction")
    if given is not None:
        values = {constant(o.node) for o in work.project.origins(script, given)}
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
