"""One process per GPU, started by mp.spawn: the number of the GPU is the rank."""

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def worker(gpu, gpus, steps):
    dist.init_process_group("nccl", init_method="env://", rank=gpu, world_size=gpus)
    torch.cuda.set_device(gpu)
    model = DDP(nn.Linear(8, 1).cuda(gpu), device_ids=[gpu])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1 * gpus)
    generator = torch.Generator().manual_seed(gpu)
    for _ in range(steps):
        x = torch.randn(16, 8, generator=generator).cuda(gpu)
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
    if gpu == 0:
        torch.save(model.module.state_dict(), "line.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    count = torch.cuda.device_count()
    mp.spawn(worker, args=(count, 100), nprocs=count)
