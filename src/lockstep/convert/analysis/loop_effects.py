"""Find what a loop leaves behind, and its effects that cannot be added up over processes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import libcst as cst

from lockstep.convert.analysis.blocks import assigned_to, receiver
from lockstep.convert.analysis.loop_lists import Filled, filling, lists_of
from lockstep.convert.analysis.loop_sums import Sum, addition, bound_in, is_read_later, sums_of
from lockstep.convert.analysis.meters import Meter, is_wanted, meters_of
from lockstep.convert.analysis.output_calls import shows
from lockstep.convert.work import Work
from lockstep.source.name_uses import base, mentions, targets
from lockstep.source.script import Script
from lockstep.source.tree import dotted, walk_shallow

_HARMLESS = re.compile(
    r"torch\.cuda\.\w+|gc\.collect|time\.\w+|.*\.(eval|train|to|cuda|zero_grad|requires_grad_|"
    r"set_description\w*|set_postfix\w*|refresh|close|display|synchronize)$"
)
_BAR = re.compile(r"tqdm|trange|[Pp]rogress|\bBar|[Ll]ogger")


@dataclass(frozen=True)
class Left:
    """The values that a loop leaves behind and later code reads."""

    sums: list[Sum]
    lists: list[Filled]
    meters: list[Meter]

    @property
    def names(self) -> list[str]:
        """The names of all sums, lists and meters."""
        named: list[Sum | Filled | Meter] = [*self.sums, *self.lists, *self.meters]
        return [one.name for one in named]


def left_by(work: Work, script: Script, loop: cst.For) -> Left:
    """Return the sums, lists and meters of a loop that later code reads."""
    return Left(
        [s for s in sums_of(script, loop).values() if is_read_later(script, loop, s.name)],
        [x for x in lists_of(script, loop).values() if is_read_later(script, loop, x.name)],
        [m for m in meters_of(work, script, loop).values() if is_wanted(script, loop, m)],
    )


def unclear(work: Work, script: Script, loop: cst.For) -> Iterator[tuple[cst.CSTNode, str]]:
    """Yield the places of a loop that keep its turns from being divided, each with the reason."""
    yield from _ends_early(loop)
    yield from _carried(script, loop)
    inside = bound_in(script, loop)
    known = _known(work, script, loop)
    for part in walk_shallow(loop.body):
        if part in known:
            continue
        if isinstance(part, cst.Assign | cst.AugAssign):
            yield from _set(part, inside)
        call = part.value if isinstance(part, cst.Expr) else None
        if isinstance(call, cst.Call):
            if call not in known and not _is_harmless(work, script, loop, call, inside):
                yield call, f"lockstep cannot see what {script.code(call.func)} keeps"
        elif (
            isinstance(part, cst.Call) and part not in known and _function_keeps(work, script, part)
        ):
            yield part, f"{script.code(part.func)} may keep something"


def _known(work: Work, script: Script, loop: cst.For) -> set[cst.CSTNode]:
    """Return the statements and calls that add to sums, lists and meters."""
    found = {node for one in sums_of(script, loop).values() for node, _ in one.added}
    found |= {node for one in lists_of(script, loop).values() for node, *_ in one.put}
    return found | {c for one in meters_of(work, script, loop).values() for c in one.calls}


def _ends_early(loop: cst.For) -> Iterator[tuple[cst.CSTNode, str]]:
    loops = [part for part in walk_shallow(loop.body) if isinstance(part, cst.For | cst.While)]
    inner = {node for other in loops for node in walk_shallow(other.body)}
    for part in walk_shallow(loop.body):
        if isinstance(part, cst.Return) or (isinstance(part, cst.Break) and part not in inner):
            yield part, "the loop may end early"


def _carried(script: Script, loop: cst.For) -> Iterator[tuple[cst.CSTNode, str]]:
    """Yield assignments that hand a value to the next batch: `out, hidden = model(x, hidden)`."""
    seen = targets(loop.target)
    for part in walk_shallow(loop.body):
        if isinstance(part, cst.For):
            seen |= targets(part.target)
        if isinstance(part, cst.Assign) and addition(script, part) is None:
            names = {name for target in part.targets for name in targets(target.target)}
            for name in sorted(names - seen):
                if mentions(part.value, {name}, set()):
                    yield part, f"{name} passes from batch to batch"
            seen |= names


def _set(part: cst.Assign | cst.AugAssign, inside: set[str]) -> Iterator[tuple[cst.CSTNode, str]]:
    """Yield assignments such as `kept[i] = x` and `n *= 2` to values older than the loop."""
    for place in assigned_to(part):
        name = base(place)
        plain = isinstance(part, cst.Assign) and isinstance(place, cst.Name | cst.Tuple | cst.List)
        if not plain and name is not None and name.split(".")[0] not in inside:
            yield part, f"{name} does not start as a new, plain sum"


def _is_harmless(
    work: Work, script: Script, loop: cst.For, call: cst.Call, inside: set[str]
) -> bool:
    """Return whether a call whose result is not used leaves nothing behind."""
    owner = receiver(call)
    if owner is not None and targets(owner) & inside:
        return True
    if filling(script, call) is not None:
        return False
    if shows(work, call) or _HARMLESS.match(script.code(call.func)):
        return True
    if owner is not None and _is_bar(work, script, loop, owner):
        return True
    made = work.project.definition(script, call.func)
    return made is not None and not _function_keeps(work, script, call)


def _is_bar(work: Work, script: Script, loop: cst.For, owner: cst.BaseExpression) -> bool:
    if script.code(owner) == script.code(loop.iter):
        return True
    origins = work.project.origins(script, owner)
    return any(o.call is not None and _BAR.search(o.script.code(o.call.func)) for o in origins)


def _function_keeps(work: Work, script: Script, call: cst.Call) -> bool:
    """Return whether a function of the project changes its arguments or a global."""
    project = work.project
    made = project.function(script, call.func)
    if made is None or shows(work, call):
        return False
    owner = made[0].class_of(made[1])
    if owner is not None and any("Module" in made[0].code(b.value) for b in owner.bases):
        return False
    return project.reaches(made[0], made[1].body, _changes)


def _changes(script: Script, part: cst.CSTNode) -> bool:
    """Return whether a statement of a function changes one of its parameters."""
    function = script.function_of(part)
    if function is None:
        return False
    if isinstance(part, cst.Global | cst.Nonlocal):
        return True
    given = {p.name.value for p in function.params.params}
    changed: list[cst.BaseExpression] = []
    if isinstance(part, cst.Assign | cst.AugAssign):
        inner = cst.Subscript | cst.Attribute
        plain = isinstance(part, cst.AugAssign)
        changed = [p for p in assigned_to(part) if plain or isinstance(p, inner)]
    elif isinstance(part, cst.Expr) and (owner := receiver(part.value)) is not None:
        assert isinstance(part.value, cst.Call)
        changed = [] if _HARMLESS.match(script.code(part.value.func)) else [owner]
    names = {(base(place) or dotted(place) or "").split(".")[0] for place in changed}
    return bool(names & given)
