"""Every rank makes a folder: all but the first find that it exists, and fail."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from lockstep.doctor.findings import Fix, Found
from lockstep.source.edits import Edit
from lockstep.source.every_rank import differs_by_rank, on_every_rank
from lockstep.source.script import Script
from lockstep.source.training import Training
from lockstep.source.tree import argument, constant, spreads


def look(training: Training) -> Iterator[Found]:
    """Find folders made without exist_ok on every rank; one finding for each function."""
    seen: set[cst.CSTNode | None] = set()
    for script in training.project.scripts:
        for call in script.calls:
            path = _path(training, script, call)
            function = script.function_of(call)
            if path is None or function in seen or spreads(call) or _is_ready(script, call):
                continue
            if differs_by_rank(training, script, path) or not on_every_rank(
                training, script, call, once=True
            ):
                continue
            seen.add(function)
            reason = "every rank makes this folder, and all but the first may fail"
            yield Found(script, call, reason, certain=False, fix=_fix(training, script, call))


def _path(training: Training, script: Script, call: cst.Call) -> cst.BaseExpression | None:
    name = training.project.name(script, call.func)
    if name in ("os.makedirs", "os.mkdir"):
        return argument(call, "name", 0) or argument(call, "path", 0)
    if isinstance(call.func, cst.Attribute) and call.func.attr.value == "mkdir" and name is None:
        # `Path.mkdir(mode, parents, exist_ok)`
        return call.func.value
    return None


def _is_ready(script: Script, call: cst.Call) -> bool:
    """Return whether the call accepts a folder that exists, or expects the error."""
    place = {"makedirs": 2}.get(getattr(call.func, "attr", cst.Name("x")).value, 2)
    given = argument(call, "exist_ok", place)
    if given is not None and constant(given) is not False:
        return True
    for parent in script.above(call):
        if isinstance(parent, cst.Try) and script.inside(call, parent.body):
            return True
        if isinstance(parent, cst.With) and "suppress" in script.code(parent.items[0]):
            return True
        if isinstance(parent, cst.FunctionDef):
            return False
    return False


def _fix(training: Training, script: Script, call: cst.Call) -> Fix | None:
    """Add exist_ok=True, which os.mkdir does not take."""
    if training.project.name(script, call.func) == "os.mkdir":
        return None
    # Other objects than paths have a mkdir, too.
    safe = training.project.name(script, call.func) == "os.makedirs"
    given = argument(call, "exist_ok", 2)
    title = "accept a folder that exists: exist_ok=True"
    if given is not None:
        return Fix(title, (Edit(*script.span(given), "True"),), safe)
    if call.args:
        here = script.span(call.args[-1])[1]
        return Fix(title, (Edit(here, here, ", exist_ok=True"),), safe)
    end = script.span(call)[1]
    here = (end[0], end[1] - 1)
    return Fix(title, (Edit(here, here, "exist_ok=True"),), safe)
