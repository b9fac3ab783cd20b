"""Let the batch norm of a model's copies, such as averaged weights, see the whole batch too."""

from __future__ import annotations

import libcst as cst

from lockstep.convert.analysis.blocks import block_of, statement_of
from lockstep.convert.analysis.models import Model
from lockstep.convert.work import Work
from lockstep.convert.wrapping import CONVERT, after_wrap, has_norm, synchronised
from lockstep.source.tree import argument, dotted

ORDER = 120
_MEASURES = "torch.optim.swa_utils.update_bn"


def rewrite(work: Work) -> None:
    """Convert copies made before the model is converted, and those that `update_bn` measures."""
    if has_norm(work) and work.options.sync_batch_norm:
        for model in work.parts.models:
            _copies(work, model)
        _measured(work)


def _copies(work: Work, model: Model) -> None:
    """Convert copies such as `teacher = copy.deepcopy(student)`, which may run in training mode."""
    script = work.script
    for where, call in work.project.calls("copy.deepcopy"):
        if where is not script or not call.args or after_wrap(work, model, call):
            continue
        statement = statement_of(script, call)
        kept = next((p for p in script.above(call) if isinstance(p, cst.Assign)), None)
        name = dotted(kept.targets[0].target) if kept is not None else None
        if name is None or statement not in block_of(script, model.ready):
            continue
        if work.parts.is_model(script, call.args[0].value) is model:
            text = synchronised(CONVERT.format(name), f"{name} = ")
            work.draft.after(model.ready, work.several(text))
            work.done("averaged", call, "batch norm of the copy sees the whole batch too")


def _measured(work: Work) -> None:
    """Convert the model of `update_bn(loader, model)` if the loader is divided."""
    for script, call in list(work.project.calls(_MEASURES)):
        loader, model = argument(call, "loader", 0), argument(call, "model", 1)
        if script is not work.script or loader is None or model is None:
            continue
        origins = work.project.origins(script, loader)
        if any(x.call is origin.call for x in work.parts.trained_on for origin in origins):
            # The copy may be older than the conversion of the model; converting twice is harmless.
            text = synchronised(CONVERT.format(script.code(model)))
            work.draft.before(statement_of(script, call), work.several(text))
            work.done("averaged", call, "batch norm is measured on the samples of all processes")
