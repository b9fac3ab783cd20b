"""A trainer class that accumulates gradients: a larger step, but the same small batches."""

import contextlib
import os

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def build_model():
    return nn.Sequential(
        nn.Conv1d(4, 64, 9), nn.BatchNorm1d(64), nn.ReLU(), nn.Flatten(), nn.LazyLinear(2)
    )


class Trainer:
    def __init__(self, rank, world_size, data):
        self.rank = rank
        model = build_model().to(rank)
        model(torch.zeros(2, 4, 256, device=f"cuda:{rank}"))
        self.model = DDP(model, device_ids=[rank])  # LS28
        self.sampler = DistributedSampler(data, world_size, rank)
        self.loader = DataLoader(data, batch_size=2, sampler=self.sampler, num_workers=3)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-3 * world_size)
        self.accumulate = 16

    def fit(self, epochs):
        for epoch in range(epochs):
            self.sampler.set_epoch(epoch)
            for i, (x, y) in enumerate(self.loader, 1):
                last = i % self.accumulate == 0
                with contextlib.nullcontext() if last else self.model.no_sync():
                    loss = nn.functional.cross_entropy(self.model(x.to(self.rank)), y.to(self.rank))
                    (loss / self.accumulate).backward()
                if last:
                    self.optimizer.step()
                    self.optimizer.zero_grad()


def worker(rank, world_size):
    os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = "localhost", "29511"
    dist.init_process_group("nccl", rank=rank, world_size=world_size)
    data = TensorDataset(torch.randn(640, 4, 256), torch.randint(2, (640,)))
    Trainer(rank, world_size, data).fit(30)
    dist.destroy_process_group()


if __name__ == "__main__":
    mp.spawn(worker, args=(torch.cuda.device_count(),), nprocs=torch.cuda.device_count())
