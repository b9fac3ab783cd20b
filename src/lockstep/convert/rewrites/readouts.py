"""Combine the numbers that training reads from tensors, as runs on two processes have shown."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from lockstep.convert.sites import span_of
from lockstep.convert.work import Work
from lockstep.probes.spans import Span
from lockstep.source.script import Script
from lockstep.source.tree import dotted, walk_shallow

ORDER = 140
HELPERS = {"mean": "all_mean", "sum": "all_sum", "rows": "all_rows", "bag": "all_rows"}
_READS = ("item", "tolist", "numpy")


def rewrite(work: Work) -> None:
    """Put `all_mean`, `all_sum` or `all_rows` around tensors that are read."""
    done: set[cst.CSTNode] = set()
    for (span, name), seen in work.options.readouts:
        kind, _, shared = seen.partition(", ")
        if kind not in HELPERS:
            continue
        read = _values(work, span, name)
        for value in [part for one in read for part in _added(work, one) or [one]]:
            if value in done:
                continue
            done.add(value)
            if shared:
                work.flags.add("shared")
            work.draft.around(value, f"{work.use(HELPERS[kind])}(")
            what = {"mean": "mean", "sum": "sum"}.get(kind, "rows")
            work.done("numbers", value, f"this reads the {what} over all processes")
    _shown(work)
    if work.options.counts:
        _counts(work)


def _shown(work: Work) -> None:
    """Show how many samples all processes have seen: `print(i * len(x), "of", len(data))`."""
    for node in _beside(work):
        if not isinstance(node, cst.Expr) or not isinstance(node.value, cst.Call):
            continue
        for part in walk_shallow(node.value):
            parent = work.script.parents.get(part)
            times = isinstance(parent, cst.BinaryOperation) and isinstance(
                parent.operator, cst.Multiply
            )
            if times and _is_count(part):
                work.draft.around(part, f"{work.use('whole')}(")
                work.done("numbers", node, "counts the samples of all processes")


def _beside(work: Work) -> Iterator[cst.CSTNode]:
    """Yield what stands in a loop, or else a function, in which a model learns."""
    seen: set[cst.CSTNode] = set()
    for forward in work.seen.forwards:
        call = work.at(forward.span) if forward.learns else None
        for node in walk_shallow(_around(work, call)) if call is not None else ():
            if node not in seen:
                seen.add(node)
                yield node


def _added(work: Work, value: cst.BaseExpression) -> list[cst.BaseExpression]:
    """Return what training adds to a tensor that is read later: `total += loss.detach()`.

    There, batches are known that do not divide evenly.
    """
    name = dotted(value)
    found = []
    for forward in work.seen.forwards if name is not None else ():
        script = work.script
        call = work.at(forward.span) if forward.learns else None
        here, work.script = work.script, script
        if call is None or here is not script:
            continue
        for node in walk_shallow(_around(work, call)):
            if isinstance(node, cst.AugAssign) and dotted(node.target) == name:
                found.append(node.value)
    return list(dict.fromkeys(found))


def _values(work: Work, span: Span, name: str) -> list[cst.BaseExpression]:
    """Return the tensors that are read at a place, as expressions of the file."""
    if not name:
        call = work.at(span)
        if call is None or not isinstance(call.func, cst.Attribute):
            return []
        return [call.func.value] if call.func.attr.value in _READS else []
    script = work.sites.script(span)
    if script is None:
        return []
    work.script = script
    same = {name, name.replace("'", '"')}
    found = []
    for node in script.order:
        if not isinstance(node, cst.Name | cst.Attribute | cst.Subscript):
            continue
        place = script.place(node)
        if span.first <= place.start.line and (place.end.line, place.end.column) <= span[1:3]:
            value = _whole(script, node) if script.code(node) in same else None
            if value is not None:
                found.append(value)
    return found


def _whole(script: Script, node: cst.BaseExpression) -> cst.BaseExpression | None:
    """Return `loss.detach()` for its `loss`; None if another attribute of it is meant."""
    while True:
        parent = script.parents.get(node)
        if not isinstance(parent, cst.Attribute) or parent.value is not node:
            inside = isinstance(parent, cst.NameItem | cst.Param | cst.AssignTarget)
            keyword = isinstance(parent, cst.Arg) and parent.keyword is node
            return None if inside or keyword or isinstance(parent, cst.Attribute) else node
        call = script.parents.get(parent)
        called = isinstance(call, cst.Call) and call.func is parent
        if called and parent.attr.value in _READS:
            return node
        if called and parent.attr.value in ("detach", "cpu") and not call.args:  # type: ignore[union-attr]
            assert isinstance(call, cst.Call)
            node = call
        elif parent.attr.value == "data" and not called:
            node = parent
        else:
            return None


def _counts(work: Work) -> None:
    """Count samples that training adds up for the whole batch: `total += y.size(0)`."""
    for node in _beside(work):
        if isinstance(node, cst.AugAssign | cst.Assign):
            adds = isinstance(node, cst.AugAssign)
            for part in walk_shallow(node.value):
                if (adds and _is_count(part)) or _is_factor(work, part):
                    work.draft.around(part, f"{work.use('whole')}(")
                    work.done("numbers", node, "counts the samples of all processes")


def _is_factor(work: Work, part: cst.CSTNode) -> bool:
    """Return whether a value is multiplied with a number that was read: `loss.item() * n`."""
    whole = work.script.parents.get(part)
    if not isinstance(whole, cst.BinaryOperation) or not isinstance(whole.operator, cst.Multiply):
        return False
    if part not in (whole.left, whole.right) or (dotted(part) is None and not _is_count(part)):
        return False
    other = whole.left if part is whole.right else whole.right
    places = {(span.path, span.line, span.column) for (span, _), _ in work.options.readouts}
    calls = [node for node in walk_shallow(other) if isinstance(node, cst.Call)]
    return any(tuple(span_of(work.script, call)[:3]) in places for call in calls)


def _around(work: Work, call: cst.Call) -> cst.CSTNode:
    """Return the loop around a call in its function, or else the function."""
    for parent in work.script.above(call):
        if isinstance(parent, cst.For | cst.While | cst.FunctionDef):
            return parent.body
    return work.script.tree


def _is_count(node: cst.CSTNode) -> bool:
    """Return whether an expression is the number of samples of a batch."""
    if isinstance(node, cst.Call):
        if dotted(node.func) == "len" and len(node.args) == 1:
            return dotted(node.args[0].value) is not None
        if isinstance(node.func, cst.Attribute) and node.func.attr.value == "size":
            return len(node.args) == 1 and getattr(node.args[0].value, "value", "") == "0"
    if isinstance(node, cst.Subscript) and isinstance(node.value, cst.Attribute):
        first = node.slice[0].slice
        zero = isinstance(first, cst.Index) and getattr(first.value, "value", "") == "0"
        return node.value.attr.value == "shape" and zero
    return False
