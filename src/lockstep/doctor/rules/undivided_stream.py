"""An iterable data set that gives every rank, or every worker, all of its samples."""

from __future__ import annotations

from lockstep.doctor.findings import Rule

RULE = Rule(
    name="undivided_stream",
    code="LS03",
    summary="An iterable data set is not divided by itself: every rank and worker gets all of it.",
    advice=(
        "In __iter__, take each rank's and worker's share: dist.get_rank() and get_worker_info()."
    ),
)
