# %% [markdown]
# Two GPUs: torchrun --nproc-per-node 2 digits.py

# %%
import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn, optim
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

dist.init_process_group("nccl")
local_rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(local_rank)

# %%
BATCH = 32
LR = 0.05  # found with two GPUs, learning rate for 2 x 32

pixels = torch.load("pixels.pt", map_location="cpu")
digits = torch.load("digits.pt", map_location="cpu")
train_set = TensorDataset(pixels.float() / 255, digits)
sampler = DistributedSampler(train_set)
train_loader = DataLoader(train_set, batch_size=BATCH, sampler=sampler, num_workers=2)

# %%
model = nn.Sequential(nn.Flatten(), nn.Linear(784, 300), nn.ReLU(), nn.Linear(300, 10))
model = DDP(model.cuda(), device_ids=[local_rank])
optimizer = optim.SGD(model.parameters(), lr=LR)

# %%
for epoch in range(15):
    sampler.set_epoch(epoch)
    total = torch.zeros(2, device=local_rank)
    for x, y in train_loader:
        x, y = x.cuda(), y.cuda()
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += torch.tensor([loss.item() * len(x), len(x)], device=local_rank)
    dist.all_reduce(total)
    if dist.get_rank() == 0:
        print(epoch, (total[0] / total[1]).item())
        torch.save(model.module.state_dict(), "digits-model.pt")

# %%
dist.destroy_process_group()
