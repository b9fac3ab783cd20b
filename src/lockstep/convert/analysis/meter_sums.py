"""Find what the meters of a loop add up, and write the lines that reduce them."""

from __future__ import annotations

import re

import libcst as cst

from lockstep.convert.analysis.batch_kinds import MASKED, MEAN, SUM, UNKNOWN, kinds
from lockstep.convert.analysis.loop_sums import COUNT, is_read_later, read_after
from lockstep.convert.analysis.meters import Meter, parameters_in
from lockstep.convert.work import Work
from lockstep.source.script import Script
from lockstep.source.tree import argument, constant, walk, walk_shallow

_SIZE = re.compile(r"[^/]*(\.size\(0\)|\.shape\[0\]|\blen\(|\.size\(\)\[0\]|batch_size)[^/]*")


def is_wanted(script: Script, loop: cst.For, meter: Meter) -> bool:
    """Return whether a meter is read after the loop, or was handed to code that may read it."""
    if is_read_later(script, loop, meter.name):
        return True
    function = script.function_of(loop)
    for part in walk_shallow(function.body if function else script.tree):
        if isinstance(part, cst.Arg | cst.Element | cst.DictElement):
            here = script.code(part.value) == meter.name
            if here and not script.inside(part, loop):
                return True
    return False


def read_last(script: Script, loop: cst.For, meter: Meter) -> cst.CSTNode | None:
    """Return a node after the loop that reads what only the last call left in a meter."""
    if not meter.kind.last:
        return None
    last = "|".join(meter.kind.last)
    pattern = re.compile(rf"\b{re.escape(meter.name)}\.({last})\b")
    for node, name in read_after(script, loop):
        if name != meter.name.split(".")[0].split("[")[0]:
            continue
        whole = script.statement_of(node)
        if pattern.search(script.code(whole)) or not _is_looked_into(script, node, meter):
            return node
    return None


def _is_looked_into(script: Script, node: cst.CSTNode, meter: Meter) -> bool:
    """Return whether a node reads `losses.avg`, calls a method of the meter, or formats it."""
    depth = meter.name.count(".")
    parent = script.parents.get(node)
    while depth and isinstance(parent, cst.Attribute):
        parent, depth = script.parents.get(parent), depth - 1
    if isinstance(parent, cst.Attribute):
        methods = meter.kind.script.scopes[meter.kind.owner].bindings.get(parent.attr.value, [])
        return not any(
            isinstance(part, cst.Attribute) and part.attr.value in meter.kind.last
            for binding in methods
            for part in walk(binding.node)
        )
    call = script.parents.get(parent) if isinstance(parent, cst.Arg) else None
    return (
        isinstance(call, cst.Call)
        and isinstance(call.func, cst.Attribute)
        and call.func.attr.value == "format"
    )


def kinds_of(work: Work, script: Script, meter: Meter) -> dict[str, tuple[str, bool]]:
    """Return for each sum of a meter what it adds up, and whether it is weighted."""
    found = {}
    for name, values in meter.kind.sums.items():
        every = {
            _kind(work, script, meter, call, value) for call in meter.calls for value in values
        }
        found[name] = every.pop() if len(every) == 1 else (UNKNOWN, False)
    return found


def _kind(
    work: Work, script: Script, meter: Meter, call: cst.Call, value: cst.BaseExpression
) -> tuple[str, bool]:
    given = []
    used = parameters_in(meter.kind, value)
    for number, parameter in enumerate(meter.kind.method.params.params[1:]):
        if parameter.name.value in used:
            found = argument(call, parameter.name.value, number) or parameter.default
            given += [found] if found is not None and constant(found) is ... else []
    if not given:
        return COUNT, False
    others = [_over_a_batch(work, script, g) for g in given if not _is_size(work, script, g)]
    if len(given) == 1:
        return (others[0], False) if others else (SUM, True)
    return SUM if others == [MEAN] else UNKNOWN, True


def _over_a_batch(work: Work, script: Script, value: cst.BaseExpression) -> str:
    found = kinds(work, script, value, 0, set()) - {MASKED}
    codes = [o.script.code(o.node) for o in work.parts.project.origins(script, value)]
    if found == {MEAN} or (found == {SUM} and not any("/" in code for code in codes)):
        return found.pop()
    return UNKNOWN


def _is_size(work: Work, script: Script, value: cst.BaseExpression) -> bool:
    """Return whether a value is `images.size(0)`, or a name for it."""
    origins = work.parts.project.origins(script, value)
    return bool(origins) and all(_SIZE.fullmatch(o.script.code(o.node)) for o in origins)


def lines(
    work: Work, script: Script, loop: cst.For, found: list[tuple[Meter, dict[str, str]]]
) -> list[str]:
    """Return the lines that reduce meters: sums with their factors, then what derives from them."""
    groups: dict[tuple[str, ...], list[str]] = {}
    for meter, factors in found:
        work.need("all_sum")
        steps = [
            f"{{0}}.{name} = {work.all_sum}({{0}}.{name}){factor}"
            for name, factor in factors.items()
        ]
        steps += [f"{{0}}.{name} = {value}" for name, value in meter.kind.derived.items()]
        groups.setdefault(tuple(steps), []).append(meter.name)
    every: list[str] = []
    for texts, names in groups.items():
        if len(names) == 1:
            every += [text.format(names[0]) for text in texts]
            continue
        taken = script.scope_of(loop).find("meter") is not None
        each = work.fresh("meter") if taken else "meter"
        every.append(f"for {each} in ({', '.join(names)}):")
        every += [f"\t{text.format(each)}" for text in texts]
    if any(meter.kind.derived for meter, _ in found):
        # A single process has its means already.
        return work.several("\n".join(every)).splitlines()
    return every
