"""Lab 3: training at scale."""

from __future__ import annotations

from lockstep.labs.shared.catalogue import Lab

LAB = Lab(
    folder=__path__[0],
    title="Training at scale",
    question="How do you keep the accuracy of one GPU when the batch grows?",
    tasks=("rate_at",),
)
