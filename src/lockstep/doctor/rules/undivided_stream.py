"""An iterable data set gives every rank, or every worker, all of its samples."""

from __future__ import annotations

from lockstep.doctor.findings import Rule

RULE = Rule(
    name="undivided_stream",
    code="LS03",
    summary="Nothing divides an iterable data set: every rank and every worker reads all of it.",
    advice=("In __iter__, yield only the share of dist.get_rank() and get_worker_info()."),
)
