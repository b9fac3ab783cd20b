"""Find objects that keep a mean: sums that a method adds to, and values that derive from them."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

import libcst as cst

from lockstep.convert.analysis.loop_sums import addition, bound_in
from lockstep.convert.analysis.start_values import is_called_before, is_zero, start_of
from lockstep.convert.work import Work
from lockstep.source.name_uses import targets
from lockstep.source.project import Project
from lockstep.source.script import Script
from lockstep.source.tree import dotted, walk, walk_shallow


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
        if not (isinstance(part, cst.Expr) and isinstance(part.value, cst.Call)):
            continue
        call = part.value
        if not isinstance(call.func, cst.Attribute) or targets(call.func.value) & inside:
            continue
        name = script.code(call.func.value)
        kind = found[name].kind if name in found else kind_of(work.parts.project, script, call)
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
    places = [t.target for t in part.targets] if isinstance(part, cst.Assign) else [part.target]
    read = {
        n.attr.value
        for n in walk(part.value)
        if isinstance(n, cst.Attribute) and dotted(n.value) == me
    }
    for place in places:
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
    project = work.parts.project
    start = start_of(script, loop, name)
    if isinstance(start, cst.Call):
        made = project.definition(script, start.func)
        return made is not None and made[1] is kind.owner

    def sets_back(call: cst.Call) -> bool:
        owner = call.func.value if isinstance(call.func, cst.Attribute) else None
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
