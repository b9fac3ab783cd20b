"""Find objects that keep a mean, what they add up in a loop, and the lines that reduce them."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

import libcst as cst

from lockstep.convert.analysis.batch_kinds import MEAN, SUM, UNKNOWN, kind_without_mask
from lockstep.convert.analysis.blocks import assigned_to, body_around, receiver
from lockstep.convert.analysis.loop_sums import (
    COUNT,
    addition,
    bound_in,
    is_called_before,
    is_read_later,
    is_zero,
    read_after,
    start_of,
)
from lockstep.convert.work import Work
from lockstep.source.name_uses import targets
from lockstep.source.project import Project
from lockstep.source.script import Script
from lockstep.source.tree import argument, constant, dotted, walk, walk_shallow

_SIZE = re.compile(r"[^/]*(\.size\(0\)|\.shape\[0\]|\blen\(|\.size\(\)\[0\]|batch_size)[^/]*")


@dataclass(eq=False)
class Kind:
    """A class whose method adds to sums and computes other values from them."""

    script: Script
    owner: cst.ClassDef
    method: cst.FunctionDef
    sums: dict[str, list[cst.BaseExpression]] = field(default_factory=dict)
    """The attributes that the method adds to, such as sum and count, and what it adds."""
    derived: dict[str, str] = field(default_factory=dict)
    """The attributes it computes from them, such as avg, and how; `{0}` stands for the object."""
    last: set[str] = field(default_factory=set)
    """The attributes that belong to the last call only, such as val."""


@dataclass(eq=False)
class Meter:
    """A meter that a loop feeds."""

    name: str
    kind: Kind
    calls: list[cst.Call] = field(default_factory=list)


def meters_of(work: Work, script: Script, loop: cst.For) -> dict[str, Meter]:
    """Return the meters that start at zero before a loop and are fed in it, in order."""
    found: dict[str, Meter] = {}
    inside = bound_in(script, loop)
    for part in walk_shallow(loop.body):
        call = part.value if isinstance(part, cst.Expr) else None
        owner = receiver(call)
        if not isinstance(call, cst.Call) or owner is None or targets(owner) & inside:
            continue
        name = script.code(owner)
        kind = found[name].kind if name in found else kind_of(work.project, script, call)
        if kind is not None and (name in found or _begins(work, script, loop, name, kind)):
            found.setdefault(name, Meter(name, kind)).calls.append(call)
    return found


def kind_of(project: Project, script: Script, call: cst.Call) -> Kind | None:
    """Return the class of a meter, if the called method does nothing but keep a mean."""
    made = project.function(script, call.func)
    owner = made[0].class_of(made[1]) if made is not None else None
    if made is None or owner is None:
        return None
    where, method = made
    parameters = [p.name.value for p in method.params.params]
    if not parameters or method.params.star_kwarg or any(a.star for a in call.args):
        return None
    kind = Kind(where, owner, method)
    me = parameters[0]
    for part in walk_shallow(method.body):
        if isinstance(part, cst.Expr) and isinstance(part.value, cst.Call):
            return None
        if isinstance(part, cst.AugAssign | cst.Assign | cst.AnnAssign) and not _note(
            kind, me, part
        ):
            return None
    zero = all(
        any(is_zero(value) for _, value in project.kept(where, owner, name)) for name in kind.sums
    )
    return kind if kind.sums and zero else None


def _note(kind: Kind, me: str, part: cst.AugAssign | cst.Assign | cst.AnnAssign) -> bool:
    """Note what an assignment does to the object; return whether it was understood."""
    added = addition(kind.script, part)
    if added is not None and (dotted(added[0]) or "").startswith(f"{me}."):
        kind.sums.setdefault((dotted(added[0]) or "")[len(me) + 1 :], []).append(added[1])
        return True
    if isinstance(part, cst.AugAssign) or part.value is None:
        return isinstance(part.target, cst.Name)
    attributes = [n for n in walk(part.value) if isinstance(n, cst.Attribute)]
    read = {n.attr.value for n in attributes if dotted(n.value) == me}
    for place in assigned_to(part):
        if isinstance(place, cst.Name):
            continue
        name = dotted(place) or ""
        if not name.startswith(f"{me}.") or name.count(".") > 1:
            return False
        name = name[len(me) + 1 :]
        if read and read <= {*kind.sums, *kind.derived} and not parameters_in(kind, part.value):
            text = kind.script.code(part.value).replace("{", "{{").replace("}", "}}")
            kind.derived[name] = re.sub(rf"\b{me}\.", "{0}.", text)
        else:
            kind.last.add(name)
    return True


def parameters_in(kind: Kind, value: cst.CSTNode) -> list[str]:
    """Return the parameters of the method, without `self`, that a value uses."""
    names = [p.name.value for p in kind.method.params.params[1:]]
    used = {n.value for n in walk(value) if isinstance(n, cst.Name)}
    return [name for name in names if name in used]


def _begins(work: Work, script: Script, loop: cst.For, name: str, kind: Kind) -> bool:
    """Return whether a meter is made or reset each time before the loop."""
    project = work.project
    start = start_of(script, loop, name)
    if isinstance(start, cst.Call):
        made = project.definition(script, start.func)
        return made is not None and made[1] is kind.owner

    def sets_back(call: cst.Call) -> bool:
        owner = receiver(call)
        if owner is None or script.code(owner) != name:
            return False
        made = project.definition(script, call.func)
        zeros = {
            (dotted(target.target) or "").split(".")[-1]
            for part in (walk(made[1].body) if made is not None else ())
            if isinstance(part, cst.Assign) and is_zero(part.value)
            for target in part.targets
        }
        return set(kind.sums) <= zeros

    return is_called_before(script, loop, sets_back)


def is_wanted(script: Script, loop: cst.For, meter: Meter) -> bool:
    """Return whether a meter is read after the loop, or was handed to code that may read it."""
    if is_read_later(script, loop, meter.name):
        return True
    return any(
        isinstance(part, cst.Arg | cst.Element | cst.DictElement)
        and script.code(part.value) == meter.name
        and not script.inside(part, loop)
        for part in walk_shallow(body_around(script, loop))
    )


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
    return receiver(call, "format") is not None


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
    kind = kind_without_mask(work, script, value)
    codes = [o.script.code(o.node) for o in work.project.origins(script, value)]
    known = kind == MEAN or (kind == SUM and not any("/" in code for code in codes))
    return kind if known else UNKNOWN


def _is_size(work: Work, script: Script, value: cst.BaseExpression) -> bool:
    """Return whether a value is `images.size(0)`, or a name for it."""
    origins = work.project.origins(script, value)
    return bool(origins) and all(_SIZE.fullmatch(o.script.code(o.node)) for o in origins)


def reduction_lines(
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
