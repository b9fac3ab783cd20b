"""A run resumed in mid-epoch starts the epoch again, or in another order."""

from __future__ import annotations

from lockstep.doctor.findings import Rule

RULE = Rule(
    name="reshuffled_resume",
    code="LS24",
    summary="After a resume in mid-epoch, the run trains again on samples of the same epoch.",
    advice=(
        "Save the position in the epoch and skip to it; torchdata's StatefulDataLoader does both."
    ),
)
