"""Training as people write it by hand: DistributedSampler, DataLoader, DDP, a plain loop."""

from __future__ import annotations

import datetime
from itertools import count

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils import clip_grad_norm_
from torch.utils.data import DistributedSampler

from lockstep.bench.assignment import Assignment
from lockstep.bench.side import Side


def run(assignment: Assignment) -> None:
    """Join as one of torchrun's processes, then train."""
    assignment.announce()
    torch.set_num_threads(1)
    if assignment.on_gpu:
        torch.cuda.set_device(assignment.device)
    dist.init_process_group(
        "nccl" if assignment.on_gpu else "gloo", timeout=datetime.timedelta(seconds=600)
    )
    train(assignment)


def train(assignment: Assignment) -> None:
    """Run the training loop; the process group exists already."""
    work, device = assignment.work, assignment.device
    torch.manual_seed(0)
    model = work.model().to(device)
    assignment.pace.begin(model)
    ddp = DistributedDataParallel(model, device_ids=[device.index] if assignment.on_gpu else None)
    optimizer = work.optimizer(ddp.parameters(), lr=work.learning_rate)
    sampler: DistributedSampler[int] = DistributedSampler(assignment.samples, shuffle=True, seed=0)  # type: ignore[arg-type]
    loader = assignment.loader(sampler)
    for epoch in count():
        sampler.set_epoch(epoch)
        for inputs, targets in loader:
            inputs = inputs.to(device, non_blocking=True)
            targets = targets.to(device, non_blocking=True)
            loss = work.loss(ddp(inputs), targets)
            optimizer.zero_grad()
            loss.backward()
            if work.clip is not None:
                clip_grad_norm_(ddp.parameters(), work.clip)
            optimizer.step()
            assignment.pace.step(len(inputs))


SIDE = Side(
    name="handwritten", sentence="a hand-written DDP loop, fp32", run=run, order=3, only_fp32=True
)
