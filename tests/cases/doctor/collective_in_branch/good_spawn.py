"""All ranks know the mean loss, and stop together."""

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def train_epoch(model, loader, optimizer, rank):
    running = 0.0
    for x, y in loader:
        loss = nn.functional.mse_loss(model(x.to(rank)), y.to(rank))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        running += loss.item()
    mean = torch.tensor(running / len(loader), device=rank)
    dist.all_reduce(mean, op=dist.ReduceOp.AVG)
    return mean.item()


def worker(rank, size, patience):
    dist.init_process_group("nccl", init_method="tcp://localhost:12355", rank=rank, world_size=size)
    torch.cuda.set_device(rank)
    data = TensorDataset(torch.randn(10000, 8), torch.randn(10000, 1))
    sampler = DistributedSampler(data, size, rank)
    loader = DataLoader(data, batch_size=100, sampler=sampler, num_workers=2)
    model = DDP(nn.Linear(8, 1).to(rank), device_ids=[rank])
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    best_loss, patience_left = float("inf"), patience
    for epoch in range(100):
        sampler.set_epoch(epoch)
        loss = train_epoch(model, loader, optimizer, rank)
        if loss < best_loss:
            best_loss, patience_left = loss, patience
        else:
            patience_left -= 1
        if patience_left == 0:
            break
    if rank == 0:
        torch.save(model.module.state_dict(), "line.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    mp.spawn(worker, args=(2, 3), nprocs=2)
