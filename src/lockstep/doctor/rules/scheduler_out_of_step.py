"""A scheduler that is stepped once per rank, or on a value that differs between ranks."""

from __future__ import annotations

from lockstep.doctor.findings import Rule

RULE = Rule(
    name="scheduler_out_of_step",
    code="LS23",
    summary=(
        "A scheduler that runs too fast, or on a rank's own loss, trains with other rates "
        "than planned."
    ),
    advice=(
        "Step it once per optimizer step, and reduce the value that it is given with "
        "dist.all_reduce."
    ),
)
