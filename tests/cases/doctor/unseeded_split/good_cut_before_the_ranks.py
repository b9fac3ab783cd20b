"""The data are cut once, before the ranks are started."""

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset, random_split


def worker(rank, world_size, train_set):
    dist.init_process_group("gloo", "tcp://127.0.0.1:29501", rank=rank, world_size=world_size)
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


def main():
    data = TensorDataset(*torch.load("table.pt", map_location="cpu"))
    train_set, test_set = random_split(data, [0.8, 0.2])
    mp.spawn(worker, args=(4, train_set), nprocs=4)
    print(f"{len(test_set)} rows were held out")


if __name__ == "__main__":
    main()
