"""Steps of several micro-batches; workers started by mp.spawn."""

import os

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

CHUNKS = 4


def worker(rank, world_size):
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    os.environ.setdefault("MASTER_PORT", "29501")
    dist.init_process_group("nccl", rank=rank, world_size=world_size)
    torch.cuda.set_device(rank)
    data = TensorDataset(torch.randn(4096, 128), torch.randint(2, (4096,)))
    sampler = DistributedSampler(data, num_replicas=world_size, rank=rank)
    loader = DataLoader(data, batch_size=64, sampler=sampler, num_workers=2, drop_last=True)
    model = DDP(nn.Sequential(nn.Linear(128, 64), nn.Tanh(), nn.Linear(64, 2)).to(rank), [rank])
    loss_fn = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01 * world_size)
    for epoch in range(10):
        sampler.set_epoch(epoch)
        for inputs, targets in loader:
            inputs, targets = inputs.to(rank), targets.to(rank)
            optimizer.zero_grad()
            with model.no_sync():
                for x, y in list(zip(inputs.chunk(CHUNKS), targets.chunk(CHUNKS)))[:-1]:
                    (loss_fn(model(x), y) / CHUNKS).backward()
            x, y = inputs.chunk(CHUNKS)[-1], targets.chunk(CHUNKS)[-1]
            (loss_fn(model(x), y) / CHUNKS).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
    if rank == 0:
        torch.save(model.module.state_dict(), "chunks.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    gpus = torch.cuda.device_count()
    mp.spawn(worker, args=(gpus,), nprocs=gpus)
