"""Divide the training data: each process takes its part of every batch."""

from __future__ import annotations

from lockstep.convert.work import Work
from lockstep.errors import ConvertError

ORDER = 10


def rewrite(work: Work) -> None:
    """Put `divided` around every DataLoader that is trained on."""
    for loader in work.seen.loaders if not work.options.source else ():
        call = work.at(loader.span) if loader.direct else None
        if call is None:
            place = f"{loader.span.path}, line {loader.span.line}" if loader.span.path else "there"
            raise ConvertError(
                "the training data come from a DataLoader that a library makes, so no line of the "
                f"script can divide it ({place}). Make the DataLoader in the script."
            )
        switch = f", {loader.switch}" if loader.switch else ""
        work.draft.around(call, f"{work.use('divided')}(", f"{switch})")
        if loader.looks:
            work.flags.add("looks")
        if work.options.scale_batch:
            work.flags.add("grows")
            reason = "each process takes every n-th batch, so the batch grows with the processes"
        else:
            reason = "each process takes its part of every batch"
        work.done("data", call, reason)
