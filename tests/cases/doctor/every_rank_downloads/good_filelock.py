import os
import urllib.request
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn as nn
from filelock import FileLock
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler
from torchvision.datasets import EMNIST
from torchvision.transforms import ToTensor


@dataclass
class Options:
    cache: Path = Path.home() / ".cache" / "emnist"
    norms_url: str = "https://example.org/emnist/norms.txt"
    epochs: int = 14
    per_gpu: int = 200


def locked_emnist(cache):
    cache.mkdir(parents=True, exist_ok=True)
    with FileLock(str(cache / "lock")):
        return EMNIST(cache, split="letters", train=True, transform=ToTensor(), download=True)


def norms(opt, rank):
    """Two numbers, fetched by the first rank only and sent to the others."""
    box = [None]
    if rank == 0:
        with urllib.request.urlopen(opt.norms_url) as reply:
            box[0] = tuple(float(v) for v in reply.read().split())
    dist.broadcast_object_list(box, src=0)
    return box[0]


def main(opt=Options()):
    gpu = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(gpu)
    dist.init_process_group("nccl")
    rank = dist.get_rank()
    ds = locked_emnist(opt.cache)
    mean, std = norms(opt, rank)
    sampler = DistributedSampler(ds)
    loader = DataLoader(ds, opt.per_gpu, sampler=sampler, num_workers=2)
    net = nn.Sequential(nn.Flatten(), nn.Linear(784, 512), nn.Tanh(), nn.Linear(512, 27)).to(gpu)
    net = DistributedDataParallel(net, device_ids=[gpu])
    optim = torch.optim.Adam(net.parameters())
    for epoch in range(opt.epochs):
        sampler.set_epoch(epoch)
        for x, y in loader:
            x = (x.to(gpu) - mean) / std
            loss = nn.functional.cross_entropy(net(x), y.to(gpu))
            optim.zero_grad()
            loss.backward()
            optim.step()
    if rank == 0:
        torch.save(net.module.state_dict(), "emnist.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
