"""Lightning Fabric: the library sets up a loop that the user writes."""

from __future__ import annotations

import torch

from lockstep.bench.assignment import Assignment, forever
from lockstep.bench.side import Side


def run(assignment: Assignment) -> None:
    """Let Fabric set up model, optimizer and loader, then train."""
    try:
        from lightning.fabric import Fabric
    except ModuleNotFoundError:
        from lightning_fabric import Fabric

    if not assignment.alone:
        assignment.announce()
    work = assignment.work
    fabric = Fabric(
        accelerator="cuda" if assignment.on_gpu else "cpu",
        devices=assignment.world.size,
        strategy="auto" if assignment.alone else "ddp",
        precision="bf16-mixed" if assignment.precision == "bf16" else "32-true",
    )
    fabric.launch()
    assignment.set_up_torch()
    torch.manual_seed(0)
    model = work.model()
    assignment.pace.begin(model)
    optimizer = work.optimizer(model.parameters(), lr=work.learning_rate)
    model, optimizer = fabric.setup(model, optimizer)
    for inputs, targets in forever(fabric.setup_dataloaders(assignment.loader())):
        optimizer.zero_grad()
        loss = work.loss(model(inputs), targets)
        fabric.backward(loss)
        if work.clip is not None:
            fabric.clip_gradients(model, optimizer, max_norm=work.clip)
        optimizer.step()
        assignment.pace.step(len(inputs))


SIDE = Side(
    name="fabric",
    sentence="Lightning Fabric",
    run=run,
    order=5,
    needs=("lightning", "lightning_fabric"),
)
