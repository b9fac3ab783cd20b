"""Only some ranks reach a collective: they wait for the others forever, and the job hangs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import takewhile

import libcst as cst

from lockstep.doctor.findings import Found
from lockstep.source.collectives import COLLECTIVES
from lockstep.source.conditions import ends
from lockstep.source.definitions import place_of
from lockstep.source.gradients import is_backward
from lockstep.source.loaders import SAMPLER
from lockstep.source.models import CUTS, WRAPPERS, may_have_buffers
from lockstep.source.ranks import divides
from lockstep.source.script import Function, Script
from lockstep.source.sure import surely_on_every_rank
from lockstep.source.training import Training
from lockstep.source.tree import argument, constant, dotted, statements, walk, walk_shallow

_FSDP_STATES = (f"{CUTS}.optim_state_dict", f"{CUTS}.full_optim_state_dict")
_STATES = {
    f"torch.distributed.checkpoint.state_dict.get_{what}state_dict"
    for what in ("", "model_", "optimizer_")
}
"""Functions that gather a state from all ranks."""
_STATE = "state_dict of a sharded model"
_LOCAL = re.compile(
    r"loss|acc|metric|score|patien|stop|improv|bad_epochs|wait|no_gain|plateau", re.I
)


def look(training: Training) -> Iterator[Found]:
    """Find collectives in branches on the rank, and training loops that one rank leaves."""
    for script in training.project.scripts:
        branches = [n for n in script.order if isinstance(n, cst.If) and divides(n.test)]
        for branch in branches:
            yield from _unmatched(training, script, branch, branches)
        yield from _decided_by_one(training, script)
        yield from _left(training, script)


def _unmatched(
    training: Training, script: Script, branch: cst.If, branches: list[cst.If]
) -> Iterator[Found]:
    """Find collectives on one side of a branch that the other side does not call."""
    sides = [
        dict(_made(training, script, side)) if side is not None else {}
        for side in (branch.body, branch.orelse)
    ]
    owner = script.class_of(branch) or _outermost(script, branch)
    elsewhere: set[str] = set()
    for other in branches:
        apart = not script.inside(other, branch) and not script.inside(branch, other)
        if other is not branch and apart and script.inside(other, owner):
            elsewhere |= {what for _, what in _made(training, script, other)}
    if ends(branch.body):
        after = dict(_after(training, script, branch))
        sides[1] = {**after, **sides[1]}
    seen = False
    for here, there in (sides, sides[::-1]):
        others = set(there.values()) | elsewhere
        for call, what in here.items():
            if what not in others:
                forward = what == "forward"
                if forward and (seen or not _broadcasts(training)):
                    # The first forward is the one that broadcasts.
                    continue
                seen = seen or forward
                reason = f"only some ranks reach this {what}, and they wait for the others"
                if forward:
                    reason = "only some ranks run the wrapped model here, and it broadcasts buffers"
                sure = not forward and _is_sure(training, script, branch, what)
                yield Found(script, call, reason, certain=sure)


def _outermost(script: Script, node: cst.CSTNode) -> cst.CSTNode:
    """Return the function that holds a place and is in no other: a closure runs with its owner."""
    functions = [p for p in script.above(node) if isinstance(p, cst.FunctionDef)]
    return functions[-1] if functions else script.tree


def _is_sure(training: Training, script: Script, branch: cst.If, what: str) -> bool:
    """Return whether ranks certainly come to a branch, and certainly call a collective there."""
    if not surely_on_every_rank(training, script, branch):
        return False
    return what != _STATE or _is_certainly_cut(training)


def _is_certainly_cut(training: Training) -> bool:
    """Return whether the program has no wrapper but FSDP, also for other settings."""
    wraps = training.named(*WRAPPERS)
    return all((training.project.name(s, c.func) or "").endswith(CUTS) for s, c in wraps)


def _broadcasts(training: Training) -> bool:
    """Return whether a forward of the wrapped model may broadcast buffers."""
    return any(
        not (training.project.name(wrap.script, wrap.call.func) or "").startswith("apex")
        and wrap.model is not None
        and constant(argument(wrap.call, "broadcast_buffers")) is not False
        and may_have_buffers(training.project, wrap.script, wrap.model)
        for wrap in training.wraps
    )


def _decided_by_one(training: Training, script: Script) -> Iterator[Found]:
    """Find collectives under a condition on a variable that only some ranks change."""
    if not any(isinstance(n, cst.If) and divides(n.test) for n in script.order):
        return
    for branch in (n for n in script.order if isinstance(n, cst.If) and not divides(n.test)):
        names = {n.value for n in walk(branch.test) if isinstance(n, cst.Name)}
        if not any(_changes_on_one(script, branch, name) for name in names):
            continue
        other = [] if branch.orelse is None else _made(training, script, branch.orelse)
        there = {what for _, what in other}
        for call, what in _made(training, script, branch.body):
            if what not in there and what != "forward":
                reason = "only some ranks change what decides here, so they may call this alone"
                yield Found(script, call, reason, certain=False)
                break


def _changes_on_one(script: Script, branch: cst.If, name: str) -> bool:
    """Return whether all values of a variable but constants come from branches on the rank."""
    found = script.scope_of(branch).find(name)
    bindings = found[1] if found is not None else []
    if any(b.kind not in ("assign", "augment") for b in bindings):
        return False
    changes = [b.node for b in bindings if constant(b.value) is ... or b.kind == "augment"]
    guards = (
        any(isinstance(p, cst.If) and divides(p.test) for p in script.above(node))
        for node in changes
    )
    if not changes or not all(guards):
        return False
    text = script.code(script.function_of(branch) or script.tree)
    return re.search(rf"(broadcast|reduce|gather)\w*\([^)]*\b{name}\b", text) is None


def _made(training: Training, script: Script, node: cst.CSTNode) -> Iterator[tuple[cst.Call, str]]:
    """Yield the calls that run a collective, directly or in a called function, with its name."""
    for call in walk_shallow(node):
        if isinstance(call, cst.Call):
            what = _collective(training, script, call) or _within(training, script, call)
            if what is not None:
                yield call, what


def _within(training: Training, script: Script, call: cst.Call) -> str | None:
    """Return the collective that a function of the project calls, or None."""
    found = training.project.function(script, call.func)
    if found is None:
        return None
    own = script.code(call.func).startswith("self.")
    for where, inner in training.project.calls_below(found[0], found[1].body):
        what = _collective(training, where, inner)
        if what is not None and _switched(where, inner, found[1], call):
            continue
        # A function that gets another model here, such as model.module, calls no collective.
        if what is not None and (
            what != "forward" or own or _gets(training, script, call, inner, found)
        ):
            return what
    return None


def _gets(
    training: Training, script: Script, call: cst.Call, inner: cst.Call, function: Function
) -> bool:
    """Return whether a call passes the wrapped model for the parameter that is called inside."""
    name = dotted(inner.func)
    if name is None or "." in name:
        return any(_is_wrapped(training, script, arg.value) for arg in call.args)
    given = argument(call, name, place_of(*function, name))
    return given is not None and _is_wrapped(training, script, given)


def _switched(script: Script, inner: cst.Call, function: cst.FunctionDef, call: cst.Call) -> bool:
    """Return whether an argument may switch the collective off.

    Example: `load(evaluate=True)`, where `load` contains `if not evaluate: barrier()`.
    """
    names = [p.name.value for p in (*function.params.params, *function.params.kwonly_params)]
    switches = enumerate(names)
    given = {n for place, n in switches if isinstance(constant(argument(call, n, place)), bool)}
    for parent in takewhile(lambda above: above is not function, script.above(inner)):
        parts = walk(parent.test) if isinstance(parent, cst.If) else ()
        if any(isinstance(n, cst.Name) and n.value in given for n in parts):
            return True
    return False


def _collective(training: Training, script: Script, call: cst.Call) -> str | None:
    name = training.project.name(script, call.func)
    if name in COLLECTIVES:
        # A group may hold exactly the ranks that come here.
        group = argument(call, "group")
        return name.rsplit(".", 1)[-1] if group is None else None
    if _gathers_state(training, script, call, name or ""):
        return _STATE
    return "forward" if name is None and _is_wrapped(training, script, call.func) else None


def _gathers_state(training: Training, script: Script, call: cst.Call, name: str) -> bool:
    """Match `fsdp.state_dict()` and `FSDP.optim_state_dict(...)`, which gather from all ranks."""
    if name.endswith(_FSDP_STATES) or name in _STATES:
        return True
    if not isinstance(call.func, cst.Attribute) or call.func.attr.value != "state_dict":
        return False
    cut = [name for name in WRAPPERS if name.endswith(CUTS)]
    return training.project.made_by(script, call.func.value, *cut)


def _is_wrapped(training: Training, script: Script, node: cst.CSTNode) -> bool:
    """Return whether this is certainly the wrapped model itself."""
    if dotted(node) is None:
        return False
    origins = training.project.origins(script, node)
    if any(isinstance(o.node, cst.Attribute) for o in origins):
        return False
    return training.project.made_by(script, node, *WRAPPERS)


def _after(training: Training, script: Script, branch: cst.If) -> Iterator[tuple[cst.Call, str]]:
    """Yield the collectives after a branch that leaves its block: the other ranks run them."""
    last = statements(branch.body)[-1]
    body: cst.CSTNode | None = None
    if isinstance(last, cst.Continue | cst.Break):
        loops = (p for p in script.above(branch) if isinstance(p, cst.For | cst.While))
        body = next((loop.body for loop in loops), None)
    elif (function := script.function_of(branch)) is not None:
        body = function.body
    for call, what in _made(training, script, body) if body is not None else ():
        later = script.order[call] > script.order[branch] and not script.inside(call, branch)
        if later and not script.apart(call, branch):
            yield call, what


def _left(training: Training, script: Script) -> Iterator[Found]:
    """Find a `break` out of a training loop that depends on the rank or on one rank's value."""
    for node in script.order:
        if not isinstance(node, cst.Break | cst.Return):
            continue
        tests: list[cst.If] = []
        for parent in script.above(node):
            if isinstance(parent, cst.FunctionDef | cst.For | cst.While):
                break
            if isinstance(parent, cst.If):
                tests.append(parent)
        else:
            continue
        if not isinstance(parent, cst.For | cst.While) or not tests:
            continue
        if not training.project.reaches(script, parent.body, is_backward):
            continue
        if any(divides(test.test) for test in tests):
            reason = "one rank leaves the loop, and the others wait in backward"
            yield Found(
                script, node, reason, certain=surely_on_every_rank(training, script, parent)
            )
        elif _is_local(training, script, tests[0].test):
            reason = "each rank decides by its own part of the data when to stop; the first "
            yield Found(script, node, f"{reason}to stop leaves the others waiting", certain=False)


def _is_local(training: Training, script: Script, test: cst.BaseExpression) -> bool:
    """Return whether a condition depends on a metric that the program never reduces."""
    if not _LOCAL.search(script.code(test)) or next(training.named(*COLLECTIVES), None):
        return False
    # If every rank validates on all samples, all ranks get the same value.
    for loader in training.loaders:
        if not any(name in SAMPLER for _, _, name in loader.makers("sampler")):
            return False
    text = "\n".join(other.text for other in training.project.scripts)
    return re.search(r"torchmetrics|all_reduce|gather|broadcast|distributed\.nn", text) is None
