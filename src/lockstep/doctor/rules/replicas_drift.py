"""Ranks whose parameters differ, whatever the reason."""

from __future__ import annotations

from lockstep.doctor.findings import Rule

RULE = Rule(
    name="replicas_drift",
    code="LS31",
    summary="Ranks with different parameters train different models; only the first one is saved.",
    advice=(
        "Find what differs between the ranks: the weights at the start, the gradients, or the "
        "rates."
    ),
)
