"""Wrap a model again after its parameters are frozen or thawed: DDP knows only those it met."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

import libcst as cst

from lockstep.convert.analysis.blocks import bindings_of, block_of, names_in, statement_of
from lockstep.convert.analysis.models import Model
from lockstep.convert.work import Work
from lockstep.convert.wrapping import after_wrap, wrapped
from lockstep.errors import ConvertError
from lockstep.source.gradients import is_backward, without_gradient
from lockstep.source.script import Script
from lockstep.source.tree import constant, dotted

ORDER = 110
_FLAGS = ("requires_grad", "requires_grad_")
_SWITCHES = re.compile(r"(un)?freeze|thaw")
_WHOLE = ("parameters", "named_parameters", *_FLAGS)
_GIVES = re.compile(r"(parameters|children|modules)\(")
_DEPTH = 5
Uses = list[tuple[Script, cst.Call]]


def rewrite(work: Work) -> None:
    """Wrap every model again where other parameters of it start to train."""
    every = list(switches(work))
    for model in work.parts.models:
        mine = [switch for switch in every if switch.model is model]
        late = [s for s in mine if not s.making and after_wrap(work, model, s.statement)]
        frozen = any(s.value is not True for s in mine if s not in late)
        if not (frozen or any(s.part for s in late) or (late and frozen_when_made(work))):
            # The whole model at once, as in a GAN: DDP knows them, and none has gradients.
            continue
        # DDP refuses a model that is frozen as a whole.
        late = [s for s in late if s.part or s.value is not False]
        statements = {s.statement for s in late}
        for statement, switch in {s.statement: s for s in late}.items():
            _check(work, switch)
            block = block_of(work.script, statement)
            if any(other in statements for other in block[block.index(statement) + 1 :][:1]):
                continue
            work.need("bare")
            again = f"{switch.name} = {wrapped(work, f'{work.bare}({switch.name})')}"
            work.draft.after(statement, work.several(again))
            work.done("unfreeze", statement, "DDP knows only parameters that it met: wrap again")


def _check(work: Work, switch: Switch) -> None:
    """Refuse if training would continue with a wrapper that does not know the parameters."""
    assert switch.model is not None
    line = switch.script.place(switch.statement).start.line
    reason = (
        f"line {line}: parameters are frozen or thawed here after DDP has wrapped the model, "
        "so the model must be wrapped again, "
    )
    if switch.script is not work.script:
        where = switch.script.path.name
        raise ConvertError(f"{where}, {reason}but lockstep rewrites {work.script.path.name} only.")
    if not switch.held:
        raise ConvertError(
            f"{reason}but {switch.name} does not hold it. Do it where {switch.model.name} is made."
        )
    other = _other_name(work, switch, switch.model)
    if other is not None:
        raise ConvertError(
            f"{reason}but line {work.line(other)} calls it {work.script.code(other)}. Use "
            f"{switch.name} there, or freeze and thaw {work.script.code(other)}."
        )
    caller = _goes_on(work, switch, switch.model)
    if caller is not None:
        raise ConvertError(
            f"{reason}but line {work.line(caller)} continues with the old one. Do it there, or "
            f"return {switch.name} and assign it there."
        )


def _other_name(work: Work, switch: Switch, model: Model) -> cst.CSTNode | None:
    """Return what training calls the model, if that is not the variable of the switch."""
    function = work.script.function_of(switch.statement)
    body: cst.CSTNode = function.body if function is not None else work.script.tree
    if switch.name.startswith("self."):
        body = work.script.class_of(switch.statement) or body
    parts = work.parts
    calls = list(parts.project.calls_below(work.script, body))
    if isinstance(body, cst.ClassDef):
        calls = [(work.script, c) for c in work.script.calls if work.script.inside(c, body)]
    for where, call in calls:
        if without_gradient(where, call) or parts.is_model(where, call.func) is not model:
            continue
        if where is work.script and not _comes_from(work, switch, where, call.func):
            return call.func
    return None


def _comes_from(
    work: Work, switch: Switch, script: Script, node: cst.CSTNode, depth: int = 5
) -> bool:
    """Return whether a name is the variable of the switch, or a parameter that is given it."""
    name = dotted(node)
    if name is None or not depth:
        return False
    function = script.function_of(node)
    if name == switch.name:
        here = script.scope_of(node).find(name)
        there = script.scopes[script.function_of(switch.statement) or script.tree].find(name)
        if name.startswith("self.") or here is None or there is None or here[0] is there[0]:
            return True
    found = script.scope_of(node).find(name)
    if function is None or found is None or found[1][0].kind != "parameter":
        return False
    given = work.project.arguments(script, function, name)
    return any(_comes_from(work, switch, where, value, depth - 1) for where, value in given)


def _goes_on(work: Work, switch: Switch, model: Model) -> cst.CSTNode | None:
    """Return a call that hands the model over, if training then continues with the old one."""
    script, project = work.script, work.project
    function = script.function_of(switch.statement)
    if function is None or switch.name.startswith("self."):
        return None
    names = [p.name.value for p in function.params.params]
    if switch.name not in names:
        return None
    for where, call in project.uses.get(function, []):
        statement = statement_of(where, call)
        given = {dotted(arg.value) for arg in call.args} - {None}
        assigned = [p for p in where.above(call) if isinstance(p, cst.Assign)]
        if any(name in given for p in assigned for t in p.targets for _, name in names_in(t)):
            continue
        for parent in where.above(statement):
            if isinstance(parent, cst.FunctionDef):
                break
            again = isinstance(parent, cst.For | cst.While)
            if again and not (where is model.script and where.inside(model.made, parent)):
                return call
        for other in where.calls:
            later = where.order[other] > where.order[call] and not where.inside(other, call)
            same = where.function_of(other) is where.function_of(call)
            if later and same and project.reaches(where, other, is_backward):
                named = {name for _, name in names_in(statement_of(where, other))}
                if named & given:
                    return call
    return None


@dataclass(frozen=True, eq=False)
class Switch:
    """A statement that freezes parameters (False) or thaws them (True; None: it depends)."""

    script: Script
    statement: cst.CSTNode
    value: bool | None
    part: bool = False
    """Whether only some of the model's parameters change."""
    model: Model | None = None
    name: str = ""
    """What the statement calls the model."""
    held: bool = True
    """Whether a new model may be assigned to the variable there."""
    making: bool = False
    """Whether the model is still being made, in a function that returns it."""


def switches(work: Work) -> Iterator[Switch]:
    """Yield all such statements, once for each call of the function that holds them."""
    for script in work.project.scripts:
        for node in list(script.order):
            found = _switched(work, script, node)
            if found is not None:
                subject, value = found
                switch = Switch(script, statement_of(script, node), value, _asked(script, node))
                yield from _seen(work, switch, subject)


def _switched(
    work: Work, script: Script, node: cst.CSTNode
) -> tuple[cst.CSTNode, bool | None] | None:
    """Return the target and the value of `p.requires_grad = True` or `m.requires_grad_(False)`."""
    given: cst.CSTNode | None = None
    if isinstance(node, cst.Assign) and isinstance(node.targets[0].target, cst.Attribute):
        subject, given = node.targets[0].target, node.value
    elif isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute):
        subject = node.func
        given = node.args[0].value if node.args else cst.Name("True")
        if _SWITCHES.search(subject.attr.value):
            known = work.project.definition(script, subject) is not None
            return None if known else (subject, None)
    else:
        return None
    if subject.attr.value not in _FLAGS:
        return None
    value = constant(given)
    return subject, value if isinstance(value, bool) else None


def _asked(script: Script, node: cst.CSTNode) -> bool:
    """Return whether a loop over parameters picks some of them with an `if`."""
    asked = False
    for parent in script.above(node):
        if isinstance(parent, cst.For):
            return asked and "parameters" in script.code(parent.iter)
        if isinstance(parent, cst.FunctionDef):
            return False
        asked = asked or isinstance(parent, cst.If)
    return False


def _seen(work: Work, switch: Switch, node: cst.CSTNode, depth: int = _DEPTH) -> Iterator[Switch]:
    """Follow parameters to their model, and the model to a variable that holds it."""
    if not depth:
        return
    script = switch.script
    for name in [part for part, _ in names_in(node)]:
        if name not in script.order:
            continue
        found = _model_in(work, script, name)
        if found is not None:
            inner, model = found
            part = switch.part or not _is_whole(script, inner)
            seen = replace(switch, part=part, model=model, name=script.code(inner))
            yield from _held(work, seen, inner, depth)
            continue
        head = name
        while isinstance(head, cst.Attribute):
            head = head.value
        assert isinstance(head, cst.Name)
        for binding in bindings_of(script, name, head.value):
            if isinstance(binding.node, cst.For) and script.inside(name, binding.node):
                outer = replace(switch, statement=statement_of(script, binding.node))
                yield from _seen(work, outer, binding.node.iter, depth - 1)
            elif binding.kind == "assign" and _is_part(script, binding.value):
                assert binding.value is not None
                yield from _seen(work, replace(switch, part=True), binding.value, depth - 1)
            elif binding.kind == "parameter":
                function = script.function_of(binding.node)
                part = head is not name and not _is_whole(script, head)
                at = replace(switch, part=switch.part or part)
                yield from _called(work, at, function, head.value, depth)


def _is_part(script: Script, value: cst.CSTNode | None) -> bool:
    """Return whether a value holds parameters of a model, rather than a copy or a result."""
    if isinstance(value, cst.Subscript):
        return _is_part(script, value.value)
    if isinstance(value, cst.Call | cst.ListComp):
        return _GIVES.search(script.code(value)) is not None
    return isinstance(value, cst.Name | cst.Attribute)


def _model_in(work: Work, script: Script, node: cst.CSTNode) -> tuple[cst.CSTNode, Model] | None:
    """Return the node `model` in `model.layers.parameters`, and its model."""
    while True:
        model = work.parts.is_model(script, node)
        if model is not None:
            return node, model
        if not isinstance(node, cst.Attribute):
            return None
        node = node.value


def _is_whole(script: Script, node: cst.CSTNode) -> bool:
    """Return whether a node stands for all parameters of its model, not for a part of them."""
    parent = script.parents[node]
    if isinstance(parent, cst.Attribute):
        around = script.parents[script.parents[parent]]
        return parent.attr.value in _WHOLE and not isinstance(around, cst.Subscript | cst.Arg)
    return isinstance(parent, cst.Arg)


def _held(work: Work, switch: Switch, node: cst.CSTNode, depth: int) -> Iterator[Switch]:
    """Yield the switch where a variable holds the model for training: here, or at the callers."""
    script, name = switch.script, switch.name
    if switch.model is not None and switch.model.many:
        yield replace(switch, held=False)
        return
    function = script.function_of(switch.statement)
    trains = function is None or work.project.reaches(script, function.body, is_backward)
    if name.startswith("self."):
        uses = work.project.uses.get(function, []) if function else []
        inner = [u for u in uses if (dotted(u[1].func) or "").startswith("self.")]
        if trains or not inner or len(inner) < len(uses):
            yield switch
        else:
            yield from _callers(work, switch, inner, depth)
        return
    found = script.scope_of(node).find(name)
    if found is None:
        return
    scope, bindings = found
    if scope.node is not (function or script.tree):
        # A variable of the module: look where this function is called.
        uses = work.project.uses.get(function, []) if function else []
        if trains:
            yield replace(switch, held=False)
        else:
            yield from _callers(work, switch, uses, depth)
    elif bindings[0].kind == "parameter" and not trains:
        yield from _called(work, switch, function, name, depth)
    else:
        other = bindings[0].kind != "parameter" and not _is_own(switch)
        alias = any(isinstance(b.value, cst.Name | cst.Attribute) for b in bindings)
        yield replace(switch, held=not other, making=other and not alias)


def _is_own(switch: Switch) -> bool:
    """Return whether the variable is the one that the model was made for."""
    model, script = switch.model, switch.script
    assert model is not None
    same = script is model.script and switch.name == model.name
    return same and script.function_of(model.made) is script.function_of(switch.statement)


def _callers(work: Work, switch: Switch, uses: Uses, depth: int) -> Iterator[Switch]:
    """Yield the switch at the calls of a function that changes a model it was not given."""
    for where, call in uses:
        if depth and where is switch.script:
            outer = replace(switch, statement=statement_of(where, call))
            function = where.function_of(call)
            more = work.project.uses.get(function, []) if function is not None else []
            if function is None or work.project.reaches(where, function.body, is_backward):
                more = []
            if more:
                yield from _callers(work, outer, more, depth - 1)
            else:
                held = switch.name.startswith("self.") or _is_own(outer)
                yield replace(outer, held=held)


def _called(
    work: Work, switch: Switch, function: cst.FunctionDef | None, name: str, depth: int
) -> Iterator[Switch]:
    """Yield the switch at the calls of a function that was given a model, or a part of one."""
    project = work.project
    if function is None:
        return
    uses = project.uses.get(function, [])
    if name == "self":
        given = [(w, c, c.func.value) for w, c in uses if isinstance(c.func, cst.Attribute)]
    else:
        values = {value for _, value in project.arguments(switch.script, function, name)}
        given = [(w, c, a.value) for w, c in uses for a in c.args if a.value in values]
    for where, call, value in given:
        outer = replace(switch, script=where, statement=statement_of(where, call))
        if outer.value is None:
            flags = [constant(a.value) for a in call.args]
            known = [flag for flag in flags if isinstance(flag, bool)]
            outer = replace(outer, value=known[0] if len(known) == 1 else None)
        yield from _seen(work, outer, value, depth - 1)


def frozen_when_made(work: Work) -> bool:
    """Return whether a module freezes parts of itself in its constructor."""
    for script in work.project.scripts:
        for node in script.order:
            function, owner = script.function_of(node), script.class_of(node)
            if function is None or owner is None or function.name.value != "__init__":
                continue
            found = _switched(work, script, node)
            if found is not None and found[1] is not True:
                return any("Module" in script.code(base) for base in owner.bases)
    return False
