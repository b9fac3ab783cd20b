"""mp.spawn workers; checkpoints are written by a module of their own."""

import os

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from checkpoints import save_checkpoint
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def worker(rank, world_size):
    os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = "localhost", "29600"
    dist.init_process_group("nccl", rank=rank, world_size=world_size)
    torch.cuda.set_device(rank)
    model = DDP(nn.Linear(50, 7).cuda(rank), device_ids=[rank])
    data = TensorDataset(torch.randn(700, 50), torch.randint(7, (700,)))
    sampler = DistributedSampler(data, world_size, rank)
    loader = DataLoader(data, batch_size=35, sampler=sampler, num_workers=2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01 * world_size)
    for epoch in range(8):
        sampler.set_epoch(epoch)
        for x, y in loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x.cuda(rank)), y.cuda(rank))
            loss.backward()
            optimizer.step()
        if rank == 0:
            save_checkpoint(model, optimizer, epoch, "runs")
    dist.destroy_process_group()


if __name__ == "__main__":
    mp.spawn(worker, args=(4,), nprocs=4)
