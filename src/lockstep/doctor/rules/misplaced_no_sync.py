"""no_sync around the last backward pass before a step keeps its gradients on their ranks."""

from __future__ import annotations

from lockstep.doctor.findings import Rule

RULE = Rule(
    name="misplaced_no_sync",
    code="LS15",
    summary=(
        "A step right after a backward pass under no_sync uses only each rank's own gradients."
    ),
    advice=(
        "Run the last micro-step before optimizer.step() outside of no_sync, also in a shorter "
        "last window."
    ),
    handled_by=frozenset({"Accelerate", "Lightning", "DeepSpeed", "Hugging Face Trainer"}),
)
