"""Lab 0's experiments: compute, data, two ways to use several GPUs, a step in fifteen parts."""

from __future__ import annotations

from lockstep.labs.shared.catalogue import Lab

LAB = Lab(
    folder=__path__[0],
    title="Why many GPUs",
    question="What does a model need, and what do several GPUs give?",
    tasks=("needed",),
)
