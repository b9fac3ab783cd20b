"""Parameters without a gradient: DDP waits for them."""

from __future__ import annotations

from lockstep.doctor.findings import Rule

RULE = Rule(
    name="unused_parameters",
    code="LS12",
    summary=("DDP waits for a gradient of every parameter; if one gets none, the next step fails."),
    advice="Remove the unused parameters, or wrap with find_unused_parameters=True.",
)
