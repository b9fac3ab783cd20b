"""Load checkpoints on the right device, after they are written, with or without `module.`."""

from __future__ import annotations

import libcst as cst

from lockstep.convert.analysis.blocks import out_of_branches, statement_of
from lockstep.convert.analysis.run_order import may_be_saved_here
from lockstep.convert.work import Work
from lockstep.convert.wrapping import PARALLEL
from lockstep.source.tree import argument, walk

ORDER = 180


def rewrite(work: Work) -> None:
    """Fix every `torch.load`, and every `load_state_dict` of a model."""
    script, project = work.script, work.project
    for where, call in list(project.calls("torch.load")):
        if where is not script:
            continue
        if argument(call, "map_location", 1) is None and _is_state(work, call):
            work.draft.insert(call.args[-1].value, ', map_location="cpu"', behind=True)
            reason = (
                "loads to the CPU, so that the processes do not all load to the GPU that saved it"
            )
            work.done("loading", call, reason)
        elif argument(call, "map_location", 1) is None:
            _whole(work, call)
        if may_be_saved_here(work, call):
            statement = out_of_branches(script, statement_of(script, call))
            work.draft.before(statement, work.several("dist.barrier()"))
            work.done("loading", call, "all processes wait until the file is written")
    if not any(s is script for s, _ in project.calls(*PARALLEL)):
        return
    for call in script.named_last("load_state_dict"):
        assert isinstance(call.func, cst.Attribute)
        if call.args and work.parts.is_model(script, call.func.value):
            state = call.args[0].value
            start = '{key.removeprefix("module."): value for key, value in '
            work.draft.around(state, start, ".items()}")
            reason = "checkpoints of the original script have module. in their keys"
            work.done("loading", call, reason)


def _whole(work: Work, call: cst.Call) -> None:
    """Load a whole model, `model = torch.load(path)`, on the script's device."""
    kept = work.script.parents.get(call)
    if not isinstance(kept, cst.Assign) or not any(
        work.parts.is_model(work.script, target.target) for target in kept.targets
    ):
        return
    scope = work.script.scope_of(call)
    device = next((name for name in ("device", "DEVICE", "dev") if scope.find(name)), None)
    if device is None:
        work.note(call, "torch.load uses the GPU that saved the model: give map_location")
        return
    work.draft.insert(call.args[-1].value, f", map_location={device}", behind=True)
    work.done("loading", call, "loads to the GPU of the process, not to the GPU that saved it")


def _is_state(work: Work, call: cst.Call) -> bool:
    """Return whether a loaded value goes to load_state_dict."""
    loads = work.script.named_last("load_state_dict")
    given = [part for load in loads for arg in load.args for part in walk(arg.value)]
    names = [part for part in given if isinstance(part, cst.Name) and part in work.script.order]
    origins = [o for name in names for o in work.project.origins(work.script, name)]
    return call in given or any(o.node is call for o in origins)
