"""The model changes after the wrap, but DDP keeps the parameters it had when it was created."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import libcst as cst

from lockstep.doctor.findings import Found
from lockstep.source.gradients import is_backward
from lockstep.source.models import Model, Wrap
from lockstep.source.project import Project
from lockstep.source.script import Script
from lockstep.source.training import Training
from lockstep.source.tree import argument, constant, spreads, walk, walk_shallow

_LAYER = re.compile(
    r"torch\.nn\.(\w+\.)*(Linear|Lazy\w+|Conv\w+|Embedding\w*|Parameter|Sequential|LayerNorm|"
    r"GroupNorm|BatchNorm\dd|GRU|LSTM|MultiheadAttention)"
)
_DTYPE = re.compile(
    r"\.(half|bfloat16|double)\(\)$|\.to\((dtype=)?torch\.(b?float16|half|double)\b"
)


_DRAWS = re.compile(r"init\.\w*?(normal|uniform|orthogonal)_?|\.(normal|uniform)_\(|torch\.rand")
_SEEDS = re.compile(r"seed", re.I)
_BY_RANK = re.compile(r"rank|gpu|device|proc", re.I)
_PARTS = re.compile(r"(named_)?(modules|parameters|children)")

_Place = tuple[Script, cst.CSTNode, bool]
"""A node that runs after a wrap, and whether it is in the wrap's function and outside any loop."""


@dataclass(frozen=True, eq=False)
class _Switch:
    """A place where parameters are frozen (False) or thawed (True)."""

    script: Script
    node: cst.CSTNode
    owner: str
    """The owner of the parameters, as source text."""
    value: bool
    part: bool
    """Whether the line changes only some of the model's parameters."""


def look(training: Training) -> Iterator[Found]:
    """Find moves, new layers, conversions and requires_grad changes between a wrap and training."""
    models = [wrap.model for wrap in training.copies]
    if any(isinstance(m, cst.Attribute) and m.attr.value == "module" for m in models):
        # A program that wraps `model.module` again does so after the change.
        return
    for wrap in training.copies:
        model = Model(training.project, wrap)
        plain = partial(_is_plain, training, wrap)
        places = [
            p for p in _after(training, wrap) if not _is_wrapped_again(training, wrap, *p[:2])
        ]
        for script, node, straight in places:
            reason = _changed(model, script, node, straight)
            if reason is not None:
                sure = "converted" not in reason and plain(script, node)
                yield Found(script, node, reason, certain=sure)
        yield from _switched(model, {node for _, node, _ in places}, plain)


def _is_plain(training: Training, wrap: Wrap, script: Script, node: cst.CSTNode) -> bool:
    """Return whether every run that wraps the model comes to a place in the same function.

    A function that is called, or a condition that nobody can decide, may belong to another run.
    """
    function = script.function_of(node)
    if script is not wrap.script or function is not script.function_of(wrap.call):
        return False
    below = node
    for parent in script.above(node):
        if parent is function:
            break
        if isinstance(parent, cst.ExceptHandler):
            return False
        own = isinstance(parent, cst.If) and not script.inside(wrap.call, parent)
        if isinstance(parent, cst.If) and own and below is not parent.test:
            holds = below is parent.body
            if training.project.truth(script, parent.test) is not holds:
                return False
        below = parent
    return True


def _is_wrapped_again(training: Training, wrap: Wrap, script: Script, node: cst.CSTNode) -> bool:
    """Return whether a model is wrapped anew after a place in the same function."""
    return any(
        other.call is not wrap.call
        and other.script is script
        and script.function_of(other.call) is script.function_of(node)
        and script.order[other.call] > script.order[node]
        for other in training.copies
    )


def _after(training: Training, wrap: Wrap) -> Iterator[_Place]:
    """Yield nodes that run between the wrap and the end of training, also in called functions."""
    script, call, project = wrap.script, wrap.call, training.project
    function = script.function_of(call)
    if isinstance(script.statement_of(call), cst.Return):
        return
    chain = [p for p in script.above(call) if isinstance(p, cst.Call)]
    yield from ((script, node, True) for node in chain)
    trained: cst.CSTNode | None = None
    for node in walk_shallow(function.body if function else script.tree):
        if script.order[node] <= script.order[call] or script.inside(node, call):
            continue
        loops = [p for p in script.above(node) if isinstance(p, cst.For | cst.While)]
        loops = [p for p in loops if function is None or script.inside(p, function)]
        if trained is not None and trained not in loops:
            return
        if _excludes(script, call, node):
            continue
        yield script, node, not loops
        if isinstance(node, cst.Call):
            ends = is_backward(script, node)
            made = project.function(script, node.func)
            if made is not None:
                for where, inside in project.reached(made[0], made[1].body, lambda s, n: True):
                    yield where, inside, False
                    ends = ends or is_backward(where, inside)
            if ends and trained is None:
                trained = loops[-1] if loops else node
    owner = script.class_of(call)
    if owner is not None and function is not None and function.name.value == "__init__":
        calls = (n for n in walk(function.body) if isinstance(n, cst.Call))
        made_first = [project.definition(script, n.func) for n in calls]
        early = [function, *(made[1] for made in made_first if made is not None)]
        for method in owner.body.body:
            if isinstance(method, cst.FunctionDef) and method not in early:
                yield from ((script, n, False) for n in walk_shallow(method.body))


def _excludes(script: Script, one: cst.CSTNode, other: cst.CSTNode) -> bool:
    """Return whether two nodes are in different branches of an if, or the first one's returns."""
    for parent in script.above(one):
        if isinstance(parent, cst.FunctionDef):
            return False
        if isinstance(parent, cst.If):
            if not script.inside(other, parent):
                if any(isinstance(n, cst.Return) for n in walk(parent.body)):
                    return True
            elif not script.inside(other, parent.body) and script.inside(one, parent.body):
                return True
    return False


def _changed(model: Model, script: Script, node: cst.CSTNode, straight: bool) -> str | None:
    """Return what this node changes in the model, or None."""
    wrap, project = model.wrap, model.project
    if isinstance(node, cst.Assign) and isinstance(node.value, cst.Call):
        target = node.targets[0].target
        here = script is wrap.script and script.function_of(node) is script.function_of(wrap.call)
        owner = target.value if isinstance(target, cst.Attribute) else None
        new = _LAYER.fullmatch(project.name(script, node.value.func) or "")
        if new and here and owner is not None and model.depth(script, owner) is not None:
            return "this layer was added after the wrap, so DDP does not exchange its gradients"
    if isinstance(node, cst.Call) and (drawn := _drawn_in_a_loop(model, script, node)):
        return drawn
    if not isinstance(node, cst.Call) or not straight:
        return None
    name = project.title(script, node.func)
    if name.endswith("SyncBatchNorm.convert_sync_batchnorm") and node.args:
        value = node.args[0].value
        if value is wrap.call or model.depth(script, value) is not None:
            return "batch norm is converted after the wrap, but DDP was created for the old layers"
    elif isinstance(node.func, cst.Attribute):
        value, last = node.func.value, node.func.attr.value
        if last == "apply" and model.depth(script, value) is not None:
            return _drawn_anew(project, script, node)
        if last not in ("to", "cuda", "half", "bfloat16", "double"):
            return None
        if value is not wrap.call and model.depth(script, value) is None:
            return None
        if _DTYPE.search(script.code(node)):
            return "the parameters change their dtype after the wrap, but DDP's buffers do not"
        goes = last == "cuda" or (last == "to" and (argument(node, "device", 0) is not None))
        if goes and not model.was_moved():
            return "the parameters move after the wrap, but DDP was created for the old device"
    return None


def _drawn_anew(project: Project, script: Script, call: cst.Call) -> str | None:
    """Return the reason if `model.apply(function)` draws weights that no seed makes equal."""
    made = project.function(script, call.args[0].value) if call.args else None
    if made is None or not _DRAWS.search(made[0].code(made[1])):
        return None
    if _is_seeded(project):
        return None
    return "every rank draws these weights by itself, after DDP has made them equal"


def _is_seeded(project: Project) -> bool:
    """Return whether all ranks get one seed, so that they draw the same weights."""
    for script in project.scripts:
        for call in script.calls:
            name = script.code(call.func).rsplit(".", 1)[-1]
            if _SEEDS.search(name) and not any(
                _differs(project, script, a.value) for a in call.args
            ):
                return True
    return False


def _differs(project: Project, script: Script, value: cst.CSTNode) -> bool:
    """Return whether a seed contains the rank, here or where the function is called."""
    origins = [origin.script.code(origin.node) for origin in project.origins(script, value)]
    return any(_BY_RANK.search(text) for text in (script.code(value), *origins))


def _drawn_in_a_loop(model: Model, script: Script, node: cst.Call) -> str | None:
    """Match `for m in model.modules(): nn.init.normal_(m.weight)`."""
    name = model.project.name(script, node.func) or ""
    if not name.startswith("torch.nn.init.") or not _DRAWS.search(name):
        return None
    for parent in script.above(node):
        if isinstance(parent, cst.For) and isinstance(parent.iter, cst.Call):
            called = parent.iter.func
            parts = isinstance(called, cst.Attribute) and _PARTS.fullmatch(called.attr.value)
            if isinstance(called, cst.Attribute) and parts:
                known = model.depth(script, called.value) is not None
                if known and not _is_seeded(model.project):
                    return "every rank draws these weights by itself, after DDP has made them equal"
    return None


def _switched(
    model: Model, nodes: set[cst.CSTNode], plain: Callable[[Script, cst.CSTNode], bool]
) -> Iterator[Found]:
    """Find parameters that are unfrozen, or frozen, after the wrap."""
    scripts = model.project.scripts
    every = [found for s in scripts for n in s.order if (found := _switch(model, s, n))]
    after = [switch for switch in every if switch.node in nodes]
    early = [switch for switch in every if not switch.value and switch.node not in nodes]
    frozen = bool(early)
    call = model.wrap.call
    unused = ("find_unused_parameters", "static_graph")
    waits = not spreads(call) and all(argument(call, name) is None for name in unused)
    thawed = {switch.owner for switch in after if switch.value}
    for switch in after:
        reason = None
        if switch.value and any(_cover(switch, one) for one in early):
            reason = "these were frozen at the wrap, so DDP never exchanges their gradients"
        elif switch.value or frozen or not waits or switch.owner in thawed:
            continue
        elif switch.part or thawed:
            reason = "these are frozen after the wrap, but DDP waits for their gradients"
        if reason is not None:
            sure = plain(switch.script, switch.node)
            # They were frozen for certain, and nothing thaws them before the wrap.
            sure = sure and any(plain(one.script, one.node) for one in early)
            yield Found(switch.script, switch.node, reason, certain=sure)


def _cover(one: _Switch, other: _Switch) -> bool:
    """Return whether two lines may switch the same parameters."""
    owners = [switch.owner.rsplit(".", 1)[-1] for switch in (one, other)]
    return not one.part or not other.part or owners[0] == owners[1]


def _switch(model: Model, script: Script, node: cst.CSTNode) -> _Switch | None:
    """Match `p.requires_grad = ...` in a loop over parameters, or `x.requires_grad_(...)`."""
    if isinstance(node, cst.Assign) and isinstance(node.targets[0].target, cst.Attribute):
        subject, value = node.targets[0].target.value, node.value
        last = node.targets[0].target.attr.value
    elif isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute) and node.args:
        subject, value, last = node.func.value, node.args[0].value, node.func.attr.value
    else:
        return None
    if last not in ("requires_grad", "requires_grad_"):
        return None
    # `p.requires_grad = name in (...)` freezes the other parameters.
    part = isinstance(value, cst.Comparison)
    flag = False if part else constant(value)
    loop = next((p for p in script.above(node) if isinstance(p, cst.For | cst.FunctionDef)), None)
    if isinstance(loop, cst.For) and isinstance(loop.iter, cst.Call):
        called = loop.iter.func
        if isinstance(called, cst.Attribute) and called.attr.value.endswith("parameters"):
            asked = [p for p in script.above(node) if isinstance(p, cst.If)]
            part |= any(script.inside(p, loop) for p in asked)
            subject = called.value
    depth = model.depth(script, subject)
    if depth is None:
        # A module may freeze parts of itself in its constructor.
        function, owner = script.function_of(node), script.class_of(node)
        made = function is not None and function.name.value == "__init__"
        bases = owner.bases if made and owner is not None else ()
        if not any("Module" in script.code(base) for base in bases):
            return None
    if not isinstance(flag, bool):
        return None
    return _Switch(script, node, script.code(subject), flag, part or bool(depth))
