"""Parameters without a gradient: DDP waits for them."""

from __future__ import annotations

from lockstep.doctor.findings import Rule

RULE = Rule(
    name="unused_parameters",
    code="LS12",
    summary=(
        "DDP waits for a gradient of every parameter, and fails in the step after one that "
        "had none."
    ),
    advice="Leave out what is not used, or wrap with find_unused_parameters=True.",
)
