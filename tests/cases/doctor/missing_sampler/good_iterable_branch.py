"""A stream cuts itself into parts; what is not a stream gets a sampler."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, IterableDataset
from torch.utils.data.distributed import DistributedSampler


def train(data, batch_size, epochs):
    dist.init_process_group("nccl")
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    net = DDP(nn.Linear(784, 10).to(device), device_ids=[device.index])
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3 * dist.get_world_size() ** 0.5)
    sampler = None
    if isinstance(data, IterableDataset):
        loader = DataLoader(data, batch_size, num_workers=4, pin_memory=True)
    else:
        sampler = DistributedSampler(data)
        loader = DataLoader(data, batch_size, sampler=sampler, num_workers=4, pin_memory=True)
    for epoch in range(epochs):
        if sampler is not None:
            sampler.set_epoch(epoch)
        for images, labels in loader:
            loss = nn.functional.cross_entropy(net(images.to(device)), labels.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
