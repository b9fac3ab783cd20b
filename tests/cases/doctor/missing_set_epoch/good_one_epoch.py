"""A run over the data once: there is no second epoch that could repeat the order."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

dist.init_process_group("nccl")
place = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(place)
waves = TensorDataset(torch.randn(4096, 32), torch.randn(4096, 1))
loader = DataLoader(waves, 64, sampler=DistributedSampler(waves), num_workers=4)
net = DistributedDataParallel(nn.Linear(32, 1).cuda(), device_ids=[place])
sgd = torch.optim.SGD(net.parameters(), lr=0.01)

for once in range(1):
    for x, y in loader:
        loss = nn.functional.mse_loss(net(x.cuda()), y.cuda())
        sgd.zero_grad()
        loss.backward()
        sgd.step()
dist.destroy_process_group()
