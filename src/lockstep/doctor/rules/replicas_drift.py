"""The ranks hold different parameters, for any reason."""

from __future__ import annotations

from lockstep.doctor.findings import Rule

RULE = Rule(
    name="replicas_drift",
    code="LS31",
    summary="Ranks with different parameters train different models, and only rank 0's is saved.",
    advice=(
        "Find what differs between the ranks: the initial weights, the gradients or the learning "
        "rates."
    ),
)
