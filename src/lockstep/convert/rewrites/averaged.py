"""Averaged weights (SWA): their batch norm is measured over the samples of all processes."""

from __future__ import annotations

import libcst as cst

from lockstep.convert.blocks import statement_of
from lockstep.convert.rewrites.wrap import has_norm, synchronised
from lockstep.convert.work import Work
from lockstep.source.script import Script
from lockstep.source.tree import argument

_MEASURES = "torch.optim.swa_utils.update_bn"


def rewrite(work: Work) -> None:
    """`update_bn(loader, model)` on data that are divided: each process has a part of a batch."""
    if not has_norm(work) or not work.options.sync_batch_norm:
        return
    for script, call in list(work.parts.project.calls(_MEASURES)):
        loader, model = argument(call, "loader", 0), argument(call, "model", 1)
        if script is not work.script or loader is None or model is None:
            continue
        if _is_divided(work, script, loader):
            # The copy may have been made before the model was converted; twice does no harm.
            statement = statement_of(script, call)
            work.draft.before(statement, work.several(synchronised(script.code(model))))
            work.done("averaged", call, "batch norm is measured over the samples of all processes")


def _is_divided(work: Work, script: Script, loader: cst.CSTNode) -> bool:
    divided = {found.call for found in work.parts.trained_on}
    return any(origin.call in divided for origin in work.parts.project.origins(script, loader))
