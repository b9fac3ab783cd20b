"""Lightning Fabric: a loop of one's own, set up by the library."""

from __future__ import annotations

import torch

from lockstep.bench.assignment import Task, forever

try:
    from lightning.fabric import Fabric
except ModuleNotFoundError:
    from lightning_fabric import Fabric


def run(task: Task) -> None:
    """Set up, then train."""
    if not task.alone:
        task.announce()
    work = task.work
    fabric = Fabric(
        accelerator="cuda" if task.on_gpu else "cpu",
        devices=task.world.size,
        strategy="auto" if task.alone else "ddp",
        precision="bf16-mixed" if task.precision == "bf16" else "32-true",
    )
    fabric.launch()
    torch.set_num_threads(1)
    if task.precision == "tf32":
        torch.set_float32_matmul_precision("high")
    torch.manual_seed(0)
    model = work.model()
    task.pace.begin(model)
    optimizer = work.optimizer(model.parameters(), lr=work.learning_rate)
    model, optimizer = fabric.setup(model, optimizer)
    for inputs, targets in forever(fabric.setup_dataloaders(task.loader())):
        optimizer.zero_grad()
        loss = work.loss(model(inputs), targets)
        fabric.backward(loss)
        if work.clip is not None:
            fabric.clip_gradients(model, optimizer, max_norm=work.clip)
        optimizer.step()
        task.pace.step(len(inputs))
