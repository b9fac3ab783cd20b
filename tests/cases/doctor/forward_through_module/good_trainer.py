"""A trainer class, one process per GPU by mp.spawn, that keeps both models and calls the wrapper."""

import os

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


class Trainer:
    def __init__(self, model, data, rank, world_size):
        self.rank = rank
        self.net = model.to(rank)
        self.ddp = DDP(self.net, device_ids=[rank])
        self.sampler = DistributedSampler(data, world_size, rank)
        self.loader = DataLoader(data, batch_size=64, sampler=self.sampler, num_workers=4)
        # The rate was tuned for 64 samples per step; scale it with the number of processes.
        self.optimizer = torch.optim.SGD(self.ddp.parameters(), lr=0.05 * world_size)
        self.loss = nn.CrossEntropyLoss()

    def step(self, inputs, targets):
        outputs = self.ddp(inputs)
        loss = self.loss(outputs, targets)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()

    def fit(self, epochs):
        for epoch in range(epochs):
            self.sampler.set_epoch(epoch)
            for inputs, targets in self.loader:
                self.step(inputs.to(self.rank), targets.to(self.rank))
            if self.rank == 0:
                torch.save(self.net.state_dict(), "net.pt")


def worker(rank, world_size):
    os.environ["MASTER_ADDR"] = "localhost"
    os.environ["MASTER_PORT"] = "29501"
    dist.init_process_group("nccl", rank=rank, world_size=world_size)
    data = TensorDataset(torch.randn(2048, 32), torch.randint(5, (2048,)))
    model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 5))
    Trainer(model, data, rank, world_size).fit(20)
    dist.destroy_process_group()


if __name__ == "__main__":
    count = torch.cuda.device_count()
    mp.spawn(worker, args=(count,), nprocs=count)
