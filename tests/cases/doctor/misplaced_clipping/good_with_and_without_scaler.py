"""One setting decides twice: how to clip, and who takes the step."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def train(loader, sampler, half, epochs):
    dist.init_process_group("nccl")
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    net = DDP(nn.Linear(784, 10).to(device), device_ids=[device.index])
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3 * dist.get_world_size() ** 0.5)
    scaler = torch.amp.GradScaler("cuda")
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        for images, labels in loader:
            optimizer.zero_grad()
            with torch.autocast("cuda", enabled=half):
                loss = nn.functional.cross_entropy(net(images.to(device)), labels.to(device))
            if half:
                scaler.scale(loss).backward()
            else:
                loss.backward()
            if half:
                scaler.unscale_(optimizer)
                nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            else:
                nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            if half:
                scaler.step(optimizer)
                scaler.update()
            else:
                optimizer.step()
