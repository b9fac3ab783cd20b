"""Hugging Face Accelerate, as its quick tour shows it."""

from __future__ import annotations

import torch
from accelerate import Accelerator

from lockstep.bench.assignment import Task, forever


def run(task: Task) -> None:
    """Prepare, then train."""
    if not task.alone:
        task.announce()
    torch.manual_seed(0)
    work = task.work
    accelerator = Accelerator(
        cpu=not task.on_gpu, mixed_precision="bf16" if task.precision == "bf16" else "no"
    )
    # It would take all cores; every side has one thread for each replica.
    torch.set_num_threads(1)
    if task.precision == "tf32":
        torch.set_float32_matmul_precision("high")
    model = work.model()
    task.pace.begin(model)
    optimizer = work.optimizer(model.parameters(), lr=work.learning_rate)
    model, optimizer, loader = accelerator.prepare(model, optimizer, task.loader())
    for inputs, targets in forever(loader):
        optimizer.zero_grad()
        loss = work.loss(model(inputs), targets)
        accelerator.backward(loss)
        if work.clip is not None:
            accelerator.clip_grad_norm_(model.parameters(), work.clip)
        optimizer.step()
        task.pace.step(len(inputs))
