"""Workers of mp.spawn wrap first and move later."""

import os

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(60, 120)
        self.last = nn.Linear(120, 6)

    def forward(self, x):
        return self.last(torch.relu(self.first(x)))


def worker(rank, world_size):
    os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = "localhost", "12345"
    dist.init_process_group("gloo", rank=rank, world_size=world_size)
    device = torch.device("cuda", rank)
    model = DDP(Net())
    model.to(device)  # LS11
    model = model.bfloat16()  # LS11
    data = TensorDataset(torch.randn(600, 60), torch.randint(6, (600,)))
    sampler = DistributedSampler(data, num_replicas=world_size, rank=rank)
    loader = DataLoader(data, batch_size=32, sampler=sampler, num_workers=2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01 * world_size)
    for epoch in range(20):
        sampler.set_epoch(epoch)
        for x, y in loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x.to(device).bfloat16()), y.to(device))
            loss.backward()
            optimizer.step()
    if rank == 0:
        torch.save(model.module.state_dict(), "net.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    mp.spawn(worker, args=(torch.cuda.device_count(),), nprocs=torch.cuda.device_count())
