"""A gradient on several ranks that is not the one of a single process."""

from __future__ import annotations

from lockstep.doctor.findings import Rule

RULE = Rule(
    name="gradient_differs",
    code="LS32",
    summary=(
        "A gradient that depends on the number of ranks trains another model on each number "
        "of them."
    ),
    advice=(
        "Make the loss a mean over samples that all ranks weigh alike: sum, reduce, then divide."
    ),
)
