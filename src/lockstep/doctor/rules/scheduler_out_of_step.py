"""A scheduler is stepped once per rank, or on a value that differs between ranks."""

from __future__ import annotations

from lockstep.doctor.findings import Rule

RULE = Rule(
    name="scheduler_out_of_step",
    code="LS23",
    summary=(
        "A scheduler that is stepped once per rank, or on one rank's loss, sets other learning "
        "rates than planned."
    ),
    advice=(
        "Step the scheduler once per optimizer step, and reduce its metric with dist.all_reduce."
    ),
)
