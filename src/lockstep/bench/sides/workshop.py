"""The loop of a first course: one device, fp32, a DataLoader without workers, batch by batch."""

from __future__ import annotations

import torch
from torch.nn.utils import clip_grad_norm_
from torch.utils.data import DataLoader

from lockstep.bench.assignment import Assignment, Batch, forever
from lockstep.bench.side import Side


def run(assignment: Assignment) -> None:
    """Train. In its favour, the loop does not read the loss after each step, as many courses do."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    work, device = assignment.work, assignment.device
    model = work.model().to(device)
    assignment.pace.begin(model)
    optimizer = work.optimizer(model.parameters(), lr=work.learning_rate)
    loader: DataLoader[Batch] = DataLoader(
        assignment.samples,  # type: ignore[arg-type]  # has all that a data set needs
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
        assignment.pace.step(len(inputs))


SIDE = Side(
    name="workshop",
    sentence="the loop of a first course: one device, fp32, a DataLoader without workers",
    run=run,
    order=7,
    one_replica=True,
    only_fp32=True,
)
