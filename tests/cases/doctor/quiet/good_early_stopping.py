"""Rank 0 decides when to stop and tells the others, so all of them leave in the same epoch."""

import os

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


class EarlyStopping:
    def __init__(self, patience=5, delta=0.0):
        self.patience = patience
        self.delta = delta
        self.best = None
        self.bad_epochs = 0

    def __call__(self, loss):
        if self.best is None or loss < self.best - self.delta:
            self.best = loss
            self.bad_epochs = 0
        else:
            self.bad_epochs += 1
        return self.bad_epochs >= self.patience


def make_set(size, seed):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(size, 16, generator=generator)
    return TensorDataset(x, (x**2).sum(1, keepdim=True))


def validation_loss(net, loader, rank):
    net.eval()
    total, count = 0.0, 0
    with torch.no_grad():
        for x, y in loader:
            total += nn.functional.mse_loss(net(x.to(rank)), y.to(rank), reduction="sum").item()
            count += len(x)
    net.train()
    return total / count


def worker(rank, world_size, epochs, batch_size):
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    os.environ.setdefault("MASTER_PORT", "29500")
    dist.init_process_group("nccl", rank=rank, world_size=world_size)
    torch.cuda.set_device(rank)
    train_set, val_set = make_set(10000, 0), make_set(2000, 1)
    sampler = DistributedSampler(train_set, world_size, rank)
    train_loader = DataLoader(train_set, batch_size, sampler=sampler, num_workers=2)
    val_loader = DataLoader(val_set, batch_size, num_workers=2)
    net = nn.Sequential(nn.Linear(16, 64), nn.Tanh(), nn.Linear(64, 1)).to(rank)
    model = DDP(net, device_ids=[rank])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01 * world_size)
    stopper = EarlyStopping(patience=3)
    stop = torch.zeros(1, dtype=torch.int, device=rank)
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        for x, y in train_loader:
            loss = nn.functional.mse_loss(model(x.to(rank)), y.to(rank))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if rank == 0:
            val_loss = validation_loss(net, val_loader, rank)
            print(f"epoch {epoch}: {val_loss:.4f}")
            if stopper(val_loss):
                stop.fill_(1)
            elif stopper.bad_epochs == 0:
                torch.save(net.state_dict(), "best.pt")
        dist.broadcast(stop, src=0)
        if stop.item():
            break
    dist.destroy_process_group()


def main():
    world_size = torch.cuda.device_count()
    mp.spawn(worker, args=(world_size, 100, 64), nprocs=world_size, join=True)


if __name__ == "__main__":
    main()
