"""Before it is wrapped, the model shows how large its gradients are; nothing is learned from it."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def sizes(net, batches):
    found = {}
    for images, labels in batches:
        nn.functional.cross_entropy(net(images), labels).backward()
        for name, weight in net.named_parameters():
            found[name] = max(found.get(name, 0.0), weight.grad.norm().item())
            weight.grad = None
    return found


def train(loader, sampler, probes, epochs):
    dist.init_process_group("nccl")
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    net = nn.Linear(784, 10).to(device)
    print(sizes(net, probes))
    wrapped = DDP(net, device_ids=[device.index])
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3 * dist.get_world_size() ** 0.5)
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        for images, labels in loader:
            loss = nn.functional.cross_entropy(wrapped(images.to(device)), labels.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
