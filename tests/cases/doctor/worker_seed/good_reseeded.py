"""The generator of the data set gets a new seed in every worker."""

import os

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, get_worker_info
from torch.utils.data.distributed import DistributedSampler


class Signals(Dataset):
    def __init__(self, count=10000):
        self.rng = np.random.default_rng()
        self.signals = torch.sin(torch.arange(count)[:, None] * torch.linspace(0, 1, 256))

    def __len__(self):
        return len(self.signals)

    def __getitem__(self, index):
        noise = self.rng.normal(size=256).astype("float32")
        return self.signals[index] + torch.from_numpy(noise), self.signals[index]


def fresh(worker_id):
    info = get_worker_info()
    info.dataset.rng = np.random.default_rng(info.seed)


dist.init_process_group("nccl")
local_rank = int(os.environ["LOCAL_RANK"])
data = Signals()
sampler = DistributedSampler(data)
loader = DataLoader(data, 64, sampler=sampler, num_workers=4, worker_init_fn=fresh)
model = DDP(nn.Linear(256, 256).cuda(local_rank), device_ids=[local_rank])
optimizer = torch.optim.Adam(model.parameters())
for epoch in range(10):
    sampler.set_epoch(epoch)
    for noisy, clean in loader:
        loss = nn.functional.mse_loss(model(noisy.cuda(local_rank)), clean.cuda(local_rank))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
dist.destroy_process_group()
