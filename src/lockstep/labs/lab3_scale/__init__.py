"""Lab 3's experiments: training at scale."""

from __future__ import annotations

from lockstep.labs.shared.catalogue import Lab

LAB = Lab(
    folder=__path__[0],
    title="Training at scale",
    question="How is the accuracy of one GPU retained when the batch grows?",
    tasks=("rate_at",),
)
