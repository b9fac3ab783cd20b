"""Hugging Face Accelerate, as its quick tour shows it."""

from __future__ import annotations

import torch

from lockstep.bench.assignment import Assignment, forever
from lockstep.bench.side import Side


def run(assignment: Assignment) -> None:
    """Let Accelerate prepare model, optimizer and loader, then train."""
    from accelerate import Accelerator

    if not assignment.alone:
        assignment.announce()
    torch.manual_seed(0)
    work = assignment.work
    accelerator = Accelerator(
        cpu=not assignment.on_gpu,
        mixed_precision="bf16" if assignment.precision == "bf16" else "no",
    )
    # Accelerate would take all cores; every side gets one thread per replica.
    assignment.set_up_torch()
    model = work.model()
    assignment.pace.begin(model)
    optimizer = work.optimizer(model.parameters(), lr=work.learning_rate)
    model, optimizer, loader = accelerator.prepare(model, optimizer, assignment.loader())
    for inputs, targets in forever(loader):
        optimizer.zero_grad()
        loss = work.loss(model(inputs), targets)
        accelerator.backward(loss)
        if work.clip is not None:
            accelerator.clip_grad_norm_(model.parameters(), work.clip)
        optimizer.step()
        assignment.pace.step(len(inputs))


SIDE = Side(
    name="accelerate", sentence="Hugging Face Accelerate", run=run, order=4, needs=("accelerate",)
)
