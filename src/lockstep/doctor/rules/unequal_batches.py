"""Ranks with different numbers of batches: at the end of an epoch some wait for the others."""

from __future__ import annotations

from lockstep.doctor.findings import Rule

RULE = Rule(
    name="unequal_batches",
    code="LS05",
    summary="A rank with one more batch waits for the others at the end of the epoch, forever.",
    advice=(
        "Give each rank equally many batches (drop_last=True, a distributed sampler), or train "
        "under Join."
    ),
    handled_by=frozenset({"Accelerate", "Lightning", "Hugging Face Trainer", "Ray Train"}),
)
