"""Training as people write it by hand: DistributedSampler, DataLoader, DDP, a plain loop."""

from __future__ import annotations

import datetime
from itertools import count

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils import clip_grad_norm_
from torch.utils.data import DistributedSampler

from lockstep.bench.assignment import Task


def run(task: Task) -> None:
    """Join as one of torchrun's processes, then train."""
    task.announce()
    torch.set_num_threads(1)
    if task.on_gpu:
        torch.cuda.set_device(task.device)
    dist.init_process_group(
        "nccl" if task.on_gpu else "gloo", timeout=datetime.timedelta(seconds=600)
    )
    train(task)


def train(task: Task) -> None:
    """The loop; the process group is there already."""
    work, device = task.work, task.device
    torch.manual_seed(0)
    model = work.model().to(device)
    task.pace.begin(model)
    ddp = DistributedDataParallel(model, device_ids=[device.index] if task.on_gpu else None)
    optimizer = work.optimizer(ddp.parameters(), lr=work.learning_rate)
    sampler: DistributedSampler[int] = DistributedSampler(task.samples, shuffle=True, seed=0)  # type: ignore[arg-type]
    loader = task.loader(sampler)
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
            task.pace.step(len(inputs))
