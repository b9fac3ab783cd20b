"""Wrap a model again after its parameters are frozen or thawed: DDP knows only those it met."""

from __future__ import annotations

import libcst as cst

from lockstep.convert.analysis.blocks import block_of, names_in, statement_of
from lockstep.convert.analysis.freezing import Switch, frozen_when_made, switches
from lockstep.convert.analysis.models import Model
from lockstep.convert.work import Work
from lockstep.convert.wrapping import after_wrap, wrapped
from lockstep.errors import ConvertError
from lockstep.source.gradients import is_backward, without_gradient
from lockstep.source.script import Script
from lockstep.source.tree import dotted

ORDER = 110


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
            work.done(
                "unfreeze",
                statement,
                "DDP knows only parameters that it met: wrap again",
            )


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
