"""The loop of a first course: one device, fp32, a DataLoader without workers, batch by batch."""

from __future__ import annotations

import torch
from torch.nn.utils import clip_grad_norm_
from torch.utils.data import DataLoader

from lockstep.bench.assignment import Batch, Task, forever


def run(task: Task) -> None:
    """Train. In its favour the loss is not read after each step, as many courses do."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    work, device = task.work, task.device
    model = work.model().to(device)
    task.pace.begin(model)
    optimizer = work.optimizer(model.parameters(), lr=work.learning_rate)
    loader: DataLoader[Batch] = DataLoader(
        task.samples,  # type: ignore[arg-type]  # it has all that a data set needs
        batch_size=work.batch,
        shuffle=True,
        drop_last=True,
    )
    for inputs, targets in forever(loader):
        inputs, targets = inputs.to(device), targets.to(device)
        optimizer.zero_grad()
        loss = work.loss(model(inputs), targets)
        loss.backward()
        if work.clip is not None:
            clip_grad_norm_(model.parameters(), work.clip)
        optimizer.step()
        task.pace.step(len(inputs))
