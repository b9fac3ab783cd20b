"""Find code that every rank certainly runs: a chain of plain calls leads there from the start.

`on_every_rank` asks what may run on every rank; a finding that relies on it alone is a warning.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice

import libcst as cst

from lockstep.source.every_rank import pieces, targets_of
from lockstep.source.project import Project
from lockstep.source.ranks import asks_rank, guarded_here
from lockstep.source.script import Passage, Script, Use, Via
from lockstep.source.training import Training
from lockstep.source.tree import walk

_DISPATCHES = re.compile(r"\b(hasattr|getattr|isinstance|type)\(")
"""Tests of what an object is: only a run shows it."""
_ENTRY = re.compile(r"_?(main|train|run)(_?(worker|process|ddp|distributed))?|cli", re.I)
_HAPPENS = re.compile(r"time|date|now\(|exist|listdir|glob|count|version|increment", re.I)
"""Parts of paths that ranks may compute differently, such as the number of the run."""
_DEEP = 8
"""The most calls between the start of a program and a place."""
_MOST = 50
"""The most chains of calls that are looked at."""


def surely_on_every_rank(training: Training, script: Script, node: cst.CSTNode) -> bool:
    """Return whether a chain of calls, free of doubtful conditions, leads all ranks to a place."""
    ways = islice(_ways(training, targets_of(training), script, node, ()), _MOST)
    return any(_is_sure(training, script, node, via) for via in ways)


def _is_sure(training: Training, script: Script, node: cst.CSTNode, via: Via) -> bool:
    """Return whether nothing on a chain of calls, outermost first, may stop some ranks."""
    project = training.project
    if not project.runs(script, node, via):
        return False
    places = [(p.script, p.call) for p in via] + [(script, node)]
    return not any(
        _is_doubtful(project, where, place, via[:number]) or _is_for_one(training, where, place)
        for number, (where, place) in enumerate(places)
    )


def surely_one_path(training: Training, script: Script, path: cst.CSTNode) -> bool:
    """Return whether all ranks certainly compute one path: no clock and no folder decides it."""
    project = training.project
    for where, part in pieces(project, script, path):
        called = project.function(where, part) if isinstance(part, cst.Name) else None
        texts = [where.code(part)]
        if called is not None:
            texts.append(called[0].code(called[1]))
        if isinstance(part, cst.Subscript):
            # `files["folder"]`, which a function of the project has put together
            made = [o for o in project.origins(where, part.value) if o.call is not None]
            known = [project.function(o.script, o.call.func) for o in made if o.call is not None]
            texts += [found[0].code(found[1]) for found in known if found is not None]
        if any(_HAPPENS.search(text) for text in texts):
            return False
    return True


def _ways(
    training: Training,
    targets: set[cst.FunctionDef],
    script: Script,
    node: cst.CSTNode,
    via: Via,
) -> Iterator[Via]:
    """Yield the chains of calls that lead to a place from where the ranks start."""
    function = script.function_of(node)
    if function is None or function in targets:
        if function is not None or not targets:
            yield via
        return
    if len(via) == _DEEP or any(passage.function is function for passage in via):
        return
    uses = _calls(training.project, script, function)
    if not uses and not targets and _is_entry(training, script, function):
        yield via
    for where, call in uses:
        longer = (Passage(function, where, call), *via)
        yield from _ways(training, targets, where, call, longer)


def _is_for_one(training: Training, script: Script, node: cst.CSTNode) -> bool:
    """Return whether a function wraps a model in DataParallel: it is made for one process."""
    function = script.function_of(node)
    return function is not None and any(
        where is script and script.inside(call, function) and training.runs(where, call)
        for where, call in training.named("torch.nn.DataParallel")
    )


def _is_entry(training: Training, script: Script, function: cst.FunctionDef) -> bool:
    """Return whether a program starts with this function, which a library calls."""
    return (
        script is training.project.scripts[0]
        and script.class_of(function) is None
        and _ENTRY.fullmatch(function.name.value) is not None
    )


def _is_doubtful(project: Project, script: Script, node: cst.CSTNode, via: Via) -> bool:
    """Return whether something in this function may keep some ranks, or all, from a node."""
    below = node
    for parent in script.above(node):
        if isinstance(parent, cst.FunctionDef):
            break
        if isinstance(parent, cst.ExceptHandler):
            return True
        if isinstance(parent, cst.If) and below is not parent.test:
            unclear = (
                asks_rank(parent.test)
                or _DISPATCHES.search(script.code(parent.test)) is not None
                or _is_filled_by_some(project, script, parent.test)
            )
            holds = below is parent.body
            if unclear and project.truth(script, parent.test, via) is not holds:
                return True
        below = parent
    return guarded_here(project, script, node)


def _is_filled_by_some(project: Project, script: Script, test: cst.CSTNode) -> bool:
    """Return whether a condition asks for an attribute that only some ranks fill or set."""
    asked = {script.code(n) for n in walk(test) if isinstance(n, cst.Attribute | cst.Subscript)}
    filled: list[tuple[cst.CSTNode, cst.CSTNode]] = [
        (call, call.func.value)
        for call in script.named_last("append", "add", "update", "extend")
        if isinstance(call.func, cst.Attribute)
    ]
    filled += [
        pair
        for node in walk(test)
        if isinstance(node, cst.Attribute)
        for pair in script.set_attributes.get(node.attr.value, ())
    ]
    return any(
        script.code(owner) in asked and guarded_here(project, script, place)
        for place, owner in filled
    )


def _calls(project: Project, script: Script, function: cst.FunctionDef) -> list[Use]:
    """Return the calls that certainly run a function: their objects are known."""
    owner = script.class_of(function)
    if owner is None:
        handed = [(h.script, h.call) for h in project.handed.get(function, [])]
        return [*project.uses.get(function, []), *handed]
    if function.name.value == "__init__":
        return project.uses.get(owner, [])
    uses = project.uses.get(function, [])
    if _is_replaced(project, script, owner, function.name.value):
        # `self.save()` may run the method of a subclass.
        uses = [(s, c) for s, c in uses if not s.code(c.func).startswith("self.")]
    return uses


def _is_replaced(project: Project, script: Script, owner: cst.ClassDef, name: str) -> bool:
    """Return whether a class below has a method of the same name."""
    for where in project.scripts:
        for node in where.order:
            if not isinstance(node, cst.ClassDef) or node is owner:
                continue
            for base in node.bases:
                above = project.class_named(where, base.value)
                if above is not None and above[1] is owner and where.methods(node, name):
                    return True
    return False
