"""Entry point; the data are cut in splits.py."""

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from splits import cross_validation_sets
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler


def worker(rank, world_size):
    dist.init_process_group("gloo", "tcp://127.0.0.1:29501", rank=rank, world_size=world_size)
    train_set, _ = cross_validation_sets("table.npz", held_out=0.2)
    sampler = DistributedSampler(train_set, world_size, rank)
    loader = DataLoader(train_set, batch_size=256, sampler=sampler, num_workers=2)
    model = DDP(nn.Sequential(nn.Linear(40, 128), nn.ReLU(), nn.Linear(128, 1)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3 * world_size)
    for epoch in range(50):
        sampler.set_epoch(epoch)
        for x, y in loader:
            loss = nn.functional.mse_loss(model(x).squeeze(1), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    if rank == 0:
        torch.save(model.module.state_dict(), "table.pt")


if __name__ == "__main__":
    mp.spawn(worker, args=(4,), nprocs=4)
