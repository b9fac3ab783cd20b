"""Rank 0 looks at the model inside the wrapper, which knows nothing of other ranks."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(32))
        self.head = nn.Linear(32, 4)

    def forward(self, x):
        return self.head(x - self.mean)


dist.init_process_group("nccl")
rank = dist.get_rank()
device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))

data = TensorDataset(torch.randn(4000, 32), torch.randint(4, (4000,)))
probe = torch.randn(256, 32, device=device)
sampler = DistributedSampler(data)
loader = DataLoader(data, batch_size=50, sampler=sampler, num_workers=2)
net = DDP(Net().to(device), device_ids=[device.index])
optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)

for epoch in range(10):
    sampler.set_epoch(epoch)
    net.train()
    for x, y in loader:
        loss = nn.functional.cross_entropy(net(x.to(device)), y.to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    if not dist.is_initialized() or rank == 0:
        net.eval()
        with torch.no_grad():
            shares = net.module(probe).softmax(1).mean(0)
        print(epoch, shares.tolist())
        torch.save(net.module.state_dict(), "net.pt")

dist.destroy_process_group()
