# %%
import os

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

dist.init_process_group("nccl")
local_rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(local_rank)

# %%
net = nn.Sequential(nn.Conv1d(1, 8, 5), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 60, 3))
net = net.cuda()
net = nn.parallel.DistributedDataParallel(net, device_ids=[local_rank])

# %%
ds = TensorDataset(torch.randn(3000, 1, 64), torch.randint(3, (3000,)))
sampler = DistributedSampler(ds, seed=1)
train_dl = DataLoader(ds, batch_size=64, sampler=sampler, num_workers=2, drop_last=True)
lr = 0.02 * dist.get_world_size()
opt = torch.optim.SGD(net.parameters(), lr=lr, momentum=0.9)

# %%
for epoch in range(12):
    sampler.set_epoch(epoch)
    net.train()
    for xb, yb in train_dl:
        opt.zero_grad()
        F.cross_entropy(net(xb.cuda()), yb.cuda()).backward()
        opt.step()

# %%
if torch.distributed.get_rank() == 0:
    weights = net.state_dict()  # LS27
    torch.save(weights, "net.pth")
