"""Lab 1: gradient descent, SGD and batch size."""

from __future__ import annotations

from lockstep.labs.shared.catalogue import Lab

LAB = Lab(
    folder=__path__[0],
    title="Gradient descent, SGD and batch size",
    question="How large a batch makes training fast, in images and in time to accuracy?",
    tasks=("convergence", "batches"),
)
