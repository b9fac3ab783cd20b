"""Lab 0: compute, data, two ways to use several GPUs, and the fifteen parts of a step."""

from __future__ import annotations

from lockstep.labs.shared.catalogue import Lab

LAB = Lab(
    folder=__path__[0],
    title="Why many GPUs",
    question="What does a model need, and what do several GPUs give you?",
    tasks=("needed",),
)
