"""One turn of a training loop: its backwards, clips and steps in order, and what feeds the loss."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import takewhile

import libcst as cst

from lockstep.source.gradients import is_backward
from lockstep.source.project import DEPTH
from lockstep.source.script import Script
from lockstep.source.training import Training
from lockstep.source.tree import argument, children, constant, dotted, returned, walk

CLIPS = ("clip_grad_norm_", "clip_grad_value_", "clip_grad_norm")
_OPTIMIZER = re.compile(r"opt", re.I)
_COUNTER = re.compile(r"accum|micro", re.I)
Kind = Callable[[Script, cst.Call], str | None]


@dataclass(frozen=True, eq=False)
class Act:
    """A call that matters, and under what it stands, from the loop inwards."""

    kind: str
    """backward, step, clip, unscale, zero_grad, or what the asker wants."""
    script: Script
    call: cst.Call
    branches: tuple[tuple[Script, cst.If, bool], ...] = ()
    """The `if`s, and whether this is what they do when true."""
    withs: tuple[tuple[Script, cst.With], ...] = ()
    loops: tuple[tuple[Script, cst.For | cst.While], ...] = ()
    """Loops inside the one that was asked about."""

    def beside(self, other: Act) -> bool:
        """Whether both can happen in one turn: not in the two branches of one `if`."""
        sides = {test: side for _, test, side in self.branches}
        return all(sides.get(test, side) == side for _, test, side in other.branches)


@dataclass(frozen=True, eq=False)
class Window:
    """Gradient accumulation: several backwards for each step."""

    script: Script
    loop: cst.For | cst.While
    """Its turns end with a step, or only some of them do."""
    backward: Act
    step: Act
    test: cst.If | None
    """What decides that it is time for the step; None if the backwards have a loop of their own."""
    at: Script
    """Where `steps` stands."""
    steps: cst.BaseExpression | None
    """How many backwards there are for a step, where this can be seen."""


def kind_of(script: Script, call: cst.Call) -> str | None:
    """What a call does for the step, by its name."""
    if is_backward(script, call):
        return "backward"
    last = call.func.attr.value if isinstance(call.func, cst.Attribute) else dotted(call.func) or ""
    if last in CLIPS:
        return "clip"
    if last == "unscale_":
        return "unscale"
    if not isinstance(call.func, cst.Attribute):
        return None
    owner = script.code(call.func.value).rsplit(".", 1)[-1]
    if last == "zero_grad":
        return last
    scaled = "scaler" in owner.lower() and len(call.args) == 1
    plain = _OPTIMIZER.search(owner) is not None and "sched" not in owner.lower()
    return "step" if last == "step" and (scaled or plain) else None


def acts(training: Training, script: Script, node: cst.CSTNode, kind: Kind = kind_of) -> list[Act]:
    """What happens below a node in the order of the program, also in functions that it calls."""
    return list(_acts(training, script, node, kind, Act("", script, cst.Call(cst.Name("x"))), ()))


def _acts(
    training: Training,
    script: Script,
    node: cst.CSTNode,
    kind: Kind,
    at: Act,
    inside: tuple[cst.CSTNode, ...],
) -> Iterator[Act]:
    if isinstance(node, cst.FunctionDef | cst.ClassDef | cst.Lambda):
        return
    if isinstance(node, cst.IndentedBlock | cst.Module):
        for item in node.body:
            yield from _acts(training, script, item, kind, at, inside)
            if isinstance(item, cst.If) and item.orelse is None and _goes_on(item.body):
                # `if not ready: continue`: what follows is its other branch.
                at = _deeper(at, branches=(*at.branches, (script, item, False)))
        return
    if isinstance(node, cst.If):
        yield from _acts(training, script, node.test, kind, at, inside)
        for side, branch in ((True, node.body), (False, node.orelse)):
            if branch is not None:
                deeper = _deeper(at, branches=(*at.branches, (script, node, side)))
                yield from _acts(training, script, branch, kind, deeper, inside)
        return
    inner = at
    if isinstance(node, cst.With):
        inner = _deeper(at, withs=(*at.withs, (script, node)))
    elif isinstance(node, cst.For | cst.While):
        inner = _deeper(at, loops=(*at.loops, (script, node)))
    for child in children(node):
        part = inner if child is getattr(node, "body", None) else at
        yield from _acts(training, script, child, kind, part, inside)
    if not isinstance(node, cst.Call):
        return
    found = kind(script, node)
    if found is not None:
        yield Act(found, script, node, at.branches, at.withs, at.loops)
        return
    for where, function in called(training, script, node):
        if function not in inside and len(inside) < DEPTH:
            yield from _acts(training, where, function.body, kind, at, (*inside, function))


def _deeper(at: Act, **changes: object) -> Act:
    held = {"branches": at.branches, "withs": at.withs, "loops": at.loops} | changes
    return Act(at.kind, at.script, at.call, **held)  # type: ignore[arg-type]


def _goes_on(body: cst.BaseSuite) -> bool:
    last = body.body[-1] if body.body else None
    if isinstance(last, cst.SimpleStatementLine):
        last = last.body[-1]
    return isinstance(last, cst.Continue | cst.Return)


def called(
    training: Training, script: Script, call: cst.Call
) -> list[tuple[Script, cst.FunctionDef]]:
    """The functions of the project that a call runs; of a module, wrapped or not, its forward."""
    project = training.project
    made = project.definition(script, call.func)
    if made is not None:
        return [(made[0], made[1])] if isinstance(made[1], cst.FunctionDef) else []
    found: list[tuple[Script, cst.FunctionDef]] = []
    if not isinstance(call.func, cst.Name) and not (dotted(call.func) or "").startswith("self."):
        return found
    waiting = project.origins(script, call.func)
    for origin in waiting:
        if origin.call is None or len(waiting) > 32:
            continue
        made = project.definition(origin.script, origin.call.func)
        if made is None and any(wrap.call is origin.call for wrap in training.wraps):
            inner = argument(origin.call, "module", 0)
            waiting += project.origins(origin.script, inner) if inner is not None else []
        if made is not None and isinstance(made[1], cst.ClassDef):
            for binding in made[0].scopes[made[1]].bindings.get("forward", []):
                if isinstance(binding.node, cst.FunctionDef):
                    found.append((made[0], binding.node))
    return found


@lru_cache(maxsize=2)
def loops(training: Training) -> list[tuple[Script, cst.For | cst.While, list[Act]]]:
    """All loops whose turns come by a backward, with what they do; several rules ask for them."""
    every = []
    for script in training.project.scripts:
        for node in script.order:
            if isinstance(node, cst.For | cst.While):
                found = acts(training, script, node.body)
                if any(act.kind == "backward" for act in found):
                    every.append((script, node, found))
    return every


def windows(training: Training) -> Iterator[Window]:
    """Where gradients are accumulated: a step every K turns, or after a loop of its own."""
    for script, loop, found in loops(training):
        steps = [act for act in found if act.kind == "step" and not act.loops]
        for number, act in enumerate(found):
            if act.kind != "backward":
                continue
            if not act.loops and not any(_ends(training, step, act) for step in steps):
                for step in steps:
                    every = timed(training, step)
                    if every is not None:
                        yield Window(script, loop, act, step, *every)
                        break
            elif len(act.loops) == 1:
                where, inner = act.loops[0]
                own = any(a.kind == "step" and a.loops[:1] == act.loops for a in found)
                rest = list(takewhile(lambda a: a.kind != "zero_grad", found[number:]))
                after = [a for a in rest if a in steps and a.beside(act)]
                if after and not own and isinstance(inner, cst.For) and _pieces(where, inner.iter):
                    yield Window(script, loop, act, after[0], None, where, _count(inner.iter))


def _ends(training: Training, step: Act, backward: Act) -> bool:
    """Whether the step comes whenever the backward does, so that nothing is accumulated."""
    here = [(test, side) for _, test, side in backward.branches]
    return step.beside(backward) and all(
        (test, side) in here or _every(training, script, test.test) is None
        for script, test, side in step.branches
    )


def timed(training: Training, act: Act) -> tuple[cst.If, Script, cst.BaseExpression] | None:
    """The `if` that lets an act happen every K turns only, and K."""
    for script, test, _ in act.branches:
        every = _every(training, script, test.test)
        if every is not None:
            return test, *every
    return None


def _every(
    training: Training, script: Script, test: cst.CSTNode
) -> tuple[Script, cst.BaseExpression] | None:
    """K, if a test counts turns: `(i + 1) % K == 0`, by itself or by name, or `micro == K`."""
    parts = [(script, node) for node in walk(test)]
    for node in walk(test):
        if isinstance(node, cst.Name | cst.Attribute):
            for origin in training.project.origins(script, node):
                if isinstance(origin.node, cst.Comparison | cst.UnaryOperation):
                    parts += [(origin.script, part) for part in walk(origin.node)]
    for where, node in parts:
        if isinstance(node, cst.BinaryOperation) and isinstance(node.operator, cst.Modulo):
            return where, node.right
        if isinstance(node, cst.Comparison) and _COUNTER.search(where.code(node)):
            target = node.comparisons[0]
            counts = isinstance(target.operator, cst.Equal | cst.GreaterThanEqual)
            if counts and constant(target.comparator) is ...:
                return where, target.comparator
    return None


def _pieces(script: Script, node: cst.BaseExpression) -> bool:
    """Whether a loop goes through a number of micro-batches."""
    return re.search(r"\brange\(|chunk|split|micro", script.code(node)) is not None


def _count(node: cst.BaseExpression) -> cst.BaseExpression | None:
    for part in walk(node):
        if isinstance(part, cst.Call) and dotted(part.func) == "range" and len(part.args) == 1:
            return part.args[0].value
    return None


def is_one(training: Training, window: Window) -> bool:
    """Whether nothing is accumulated after all: K is 1 by the text, not by a flag's default."""
    if window.steps is None:
        return False
    origins = training.project.origins(window.at, window.steps)
    flags = [
        isinstance(p, cst.Call) and "add_argument" in o.script.code(p.func)
        for o in origins
        for p in o.script.above(o.node)
    ]
    return all(constant(o.node) == 1 for o in origins) and not any(flags)


def loss_of(backward: cst.Call) -> cst.BaseExpression | None:
    """`loss` of loss.backward() and of scaler.scale(loss).backward()."""
    assert isinstance(backward.func, cst.Attribute)
    value = backward.func.value
    while isinstance(value, cst.Call) and isinstance(value.func, cst.Attribute):
        if value.func.attr.value != "scale" or not value.args:
            break
        value = value.args[0].value
    return value


def feeding(
    training: Training, script: Script, node: cst.CSTNode
) -> Iterator[tuple[Script, cst.CSTNode]]:
    """Expressions that a value is made of: through names, operators, calls and what they return."""
    seen: set[cst.CSTNode] = set()
    waiting = [(script, node, 0)]
    while waiting:
        where, part, depth = waiting.pop()
        if part in seen or depth > 40 or part not in where.order:
            continue
        seen.add(part)
        yield where, part
        if isinstance(part, cst.Name) or (isinstance(part, cst.Attribute) and dotted(part)):
            name = dotted(part) or ""
            found = where.scope_of(part).find(name)
            owner = where.class_of(part) if name.startswith("self.") else None
            if found is None and owner is not None and name in where.scopes[owner].bindings:
                found = where.scopes[owner], where.scopes[owner].bindings[name]
            for binding in found[1] if found else ():
                if binding.kind in ("assign", "augment") and binding.value is not None:
                    waiting.append((where, binding.value, depth + 1))
            if found is None and isinstance(part, cst.Attribute):
                waiting.append((where, part.value, depth + 1))
            continue
        if isinstance(part, cst.Call):
            for other, function in called(training, where, part):
                for result in returned(function):
                    if result is not None:
                        waiting.append((other, result, depth + 1))
        waiting += [(where, child, depth + 1) for child in children(part)]
