"""no_sync around the last backward pass before a step: its gradients stay on their ranks."""

from __future__ import annotations

from lockstep.doctor.findings import Rule

RULE = Rule(
    name="misplaced_no_sync",
    code="LS15",
    summary=(
        "Gradients of a backward pass under no_sync are not added over the ranks by the next step."
    ),
    advice=(
        "Leave the last micro-step before optimizer.step() out of no_sync, also in a short "
        "last window."
    ),
    handled_by=frozenset({"Accelerate", "Lightning", "DeepSpeed", "Hugging Face Trainer"}),
)
