"""The raw model is kept beside the wrapper, which exists only in distributed runs."""

import copy
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

distributed = int(os.environ.get("WORLD_SIZE", 1)) > 1
if distributed:
    dist.init_process_group("nccl")
rank = int(os.environ.get("RANK", 0))
local_rank = int(os.environ.get("LOCAL_RANK", 0))
world_size = int(os.environ.get("WORLD_SIZE", 1))


def unwrap(model):
    return model.module if hasattr(model, "module") else model


def save(model, path):
    if isinstance(model, DDP):
        state = model.module.state_dict()
    else:
        state = model.state_dict()
    torch.save(state, path)


model = nn.Linear(30, 3).to(local_rank)
plain = model
model_without_ddp = model
if distributed:
    model = DDP(model, device_ids=[local_rank])
    model_without_ddp = model.module
raw_model = model.module if distributed else model

data = TensorDataset(torch.randn(900, 30), torch.randint(3, (900,)))
sampler = DistributedSampler(data, world_size, rank)
loader = DataLoader(data, batch_size=50, sampler=sampler, num_workers=2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.03 * world_size)
best = copy.deepcopy(raw_model.state_dict())
for epoch in range(10):
    sampler.set_epoch(epoch)
    for x, y in loader:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x.to(local_rank)), y.to(local_rank)).backward()
        optimizer.step()
    if rank == 0:
        save(model, "a.pt")
        torch.save(plain.state_dict(), "b.pt")
        torch.save(model_without_ddp.state_dict(), "c.pt")
        torch.save({"model": raw_model.state_dict(), "epoch": epoch}, "d.pt")
        torch.save(unwrap(model).state_dict(), "e.pt")
        torch.save((model.module if distributed else model).state_dict(), "f.pt")
