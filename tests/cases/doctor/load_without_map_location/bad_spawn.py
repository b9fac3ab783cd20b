"""Fine-tuning from a given file with mp.spawn; where the file comes from is not known."""

import os

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

PRETRAINED = "weights/backbone.pth"


def build():
    model = nn.Sequential(nn.Linear(128, 256), nn.ReLU(), nn.Linear(256, 20))
    weights = torch.load(  # LS26
        PRETRAINED,
        map_location=None,
    )
    model.load_state_dict(weights, strict=False)
    return model


def worker(rank, world_size):
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    os.environ.setdefault("MASTER_PORT", "12355")
    dist.init_process_group("nccl", rank=rank, world_size=world_size)
    torch.cuda.set_device(rank)
    model = DDP(build().to(rank), device_ids=[rank])
    data = TensorDataset(torch.randn(1000, 128), torch.randint(20, (1000,)))
    sampler = DistributedSampler(data, num_replicas=world_size, rank=rank)
    loader = DataLoader(data, batch_size=40, sampler=sampler, num_workers=2)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4 * world_size)
    for epoch in range(5):
        sampler.set_epoch(epoch)
        for x, y in loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x.to(rank)), y.to(rank)).backward()
            optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    mp.spawn(worker, args=(torch.cuda.device_count(),), nprocs=torch.cuda.device_count())
