"""Segmentation with mp.spawn; the loader is made in another module."""

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from tiles import loader_for


def run(rank, size):
    dist.init_process_group("nccl", init_method="tcp://localhost:29511", rank=rank, world_size=size)
    torch.cuda.set_device(rank)
    loader, sampler = loader_for("tiles", rank, size)
    model = nn.Sequential(nn.Conv2d(3, 64, 3, padding=1), nn.ReLU(), nn.Conv2d(64, 1, 1))
    model = DDP(model.to(rank), device_ids=[rank])
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    for epoch in range(40):
        sampler.set_epoch(epoch)
        for images, masks in loader:
            logits = model(images.to(rank, non_blocking=True)).squeeze(1)
            loss = nn.functional.binary_cross_entropy_with_logits(logits, masks.to(rank))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if rank == 0:
            torch.save(model.module.state_dict(), "segment.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    count = torch.cuda.device_count()
    mp.spawn(run, args=(count,), nprocs=count)
