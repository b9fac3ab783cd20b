"""The gradient on several ranks differs from the gradient of a single process."""

from __future__ import annotations

from lockstep.doctor.findings import Rule

RULE = Rule(
    name="gradient_differs",
    code="LS32",
    summary=(
        "A gradient that depends on the number of ranks trains a different model on each number."
    ),
    advice=(
        "Give every sample the same weight on all ranks: sum the loss, reduce it, then divide."
    ),
)
