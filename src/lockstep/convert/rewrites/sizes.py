"""Replace the batch size by that of one process where training makes tensors with it."""

from __future__ import annotations

import re

import libcst as cst

from lockstep.convert.work import Work
from lockstep.source.script import Script
from lockstep.source.tree import argument, code, constant, dotted, walk, walk_shallow

ORDER = 50
_MAKES = re.compile(
    r"torch\.(zeros|ones|full|empty|rand|randn|randint|normal|arange|randperm)$|"
    r"(torch\.)?(\w*Tensor)$|numpy\.(zeros|ones|full|random\.\w+)$"
)
_SHAPES = {"view", "reshape", "expand", "repeat", "new_zeros", "new_ones", "new_full", "new_empty",
           "new_tensor", "fill_", "unflatten", "chunk", "split"}  # fmt: skip
_RANDOM = re.compile(r"rand|normal|noise|sample")
_LOSSES = re.compile(r"loss|criterion|bce|mse|crit", re.I)
_NAMED = re.compile(r"(init|make|get|reset|sample|zero|hidden|noise|latent|state)", re.I)


def rewrite(work: Work) -> None:
    """Put `part_of` around the batch size, in code that runs in training."""
    if work.options.scale_batch:
        return
    sizes = _sizes(work)
    if not sizes:
        return
    places = _training(work)
    for script, function in places:
        work.script = script
        body = function.body if function is not None else script.tree
        for node in walk_shallow(body):
            if isinstance(node, cst.Call) and _is_made(work, node):
                _replace(work, node, sizes)


def _sizes(work: Work) -> set[str]:
    """Return the expressions that loaders are given as their batch size, and what they equal."""
    found: set[str] = set()
    for loader in work.seen.loaders:
        call = work.at(loader.span)
        size = argument(call, "batch_size", 1) if call is not None else None
        if size is None:
            continue
        found |= _alike(work, code(size), size)
        for origin in work.project.origins(work.script, size):
            found |= _alike(work, origin.script.code(origin.node), origin.node)
    return found


def _alike(work: Work, text: str, node: cst.CSTNode) -> set[str]:
    value = constant(node)
    if isinstance(value, int):
        return {str(value)} if value > 3 and work.options.numbers else set()
    if dotted(node) is None and not isinstance(node, cst.Subscript):
        return set()
    last = text.rpartition(".")[2]
    names = {text}
    if "." in text:
        names |= {f"self.{last}"} | {last} if "batch" in last.lower() else set()
    elif "batch" in text.lower():
        names |= {f"self.{text}", f"self.args.{text}"}
    return names


def _training(work: Work) -> list[tuple[Script, cst.FunctionDef | None]]:
    """Return the functions that call a model to train it, and methods of modules."""
    found: dict[tuple[Script, cst.FunctionDef | None], None] = {}
    if work.options.numbers:
        for script in work.scripts:
            for node in walk(script.tree):
                if isinstance(node, cst.FunctionDef) and node.name.value == "forward":
                    found[script, node] = None
    spans = [f.span for f in work.seen.forwards if f.learns]
    spans += [span for acts in work.seen.acts for _, span in acts]
    for span in spans:
        call = work.at(span)
        if call is not None:
            found[work.script, work.script.function_of(call)] = None
    return list(found)


def _is_made(work: Work, call: cst.Call) -> bool:
    name = work.project.title(work.script, call.func)
    if _MAKES.match(name):
        return True
    if not isinstance(call.func, cst.Attribute):
        return (
            bool(_NAMED.search(name))
            and work.project.definition(work.script, call.func) is not None
        )
    return call.func.attr.value in _SHAPES or bool(_NAMED.search(call.func.attr.value))


def _factors(node: cst.BaseExpression) -> list[cst.BaseExpression]:
    """Return the factors of a product: `reshape(batch_size * length)`."""
    if isinstance(node, cst.BinaryOperation) and isinstance(node.operator, cst.Multiply):
        return [*_factors(node.left), *_factors(node.right)]
    return [node]


def _is_target(work: Work, call: cst.Call) -> bool:
    """Return whether a constant is made before the training, and losses compare with it."""
    text = work.script.code(call)
    statement = work.statement(call)
    assign = statement.body[0] if isinstance(statement, cst.SimpleStatementLine) else None
    if _RANDOM.search(text) or not isinstance(assign, cst.Assign):
        return False
    name = dotted(assign.targets[0].target)
    return name is not None and any(
        _LOSSES.search(code(other.func))
        and any(dotted(arg.value) == name for arg in other.args)
        and any(isinstance(p, cst.For | cst.While) for p in work.script.above(other))
        for other in work.script.calls
    )


def _replace(work: Work, call: cst.Call, sizes: set[str]) -> None:
    """Replace batch sizes in the arguments of a call, as whole arguments or elements of a shape."""
    above = list(work.script.above(call))
    wide = work.options.numbers
    inside = any(isinstance(p, cst.For | cst.While) for p in above) or (
        wide and any(isinstance(p, cst.FunctionDef) and p.name.value == "forward" for p in above)
    )
    if not inside and not (wide and _is_target(work, call)):
        return
    for arg in call.args:
        parts = [arg.value]
        if isinstance(arg.value, cst.Tuple | cst.List):
            parts = [element.value for element in arg.value.elements]
        fitted = any(constant(part) == -1 for part in [*parts, *(a.value for a in call.args)])
        if fitted and not wide:
            continue
        for part in (factor for one in parts for factor in _factors(one)):
            if code(part) in sizes and call.func is not part:
                if isinstance(part, cst.Integer) and len(parts) == 1 and len(call.args) == 1:
                    continue
                work.draft.around(part, f"{work.use('part_of')}(")
                work.done("batch size", part, "each process has its part of the batch")
