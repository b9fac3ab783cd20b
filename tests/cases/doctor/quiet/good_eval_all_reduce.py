"""Every rank tests its own part; sums and counts are added before anything is divided."""

import os
from collections import defaultdict

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Subset
from torch.utils.data.distributed import DistributedSampler
from torchvision.datasets import CIFAR10
from torchvision.transforms import ToTensor

CONFIG = dict(epochs=20, batch=64, lr=0.05, workers=4)


class AverageMeter:
    def __init__(self):
        self.sum = 0.0
        self.count = 0

    def update(self, value, n):
        self.sum += value * n
        self.count += n

    def all_reduce(self, device):
        total = torch.tensor([self.sum, self.count], dtype=torch.float64, device=device)
        dist.all_reduce(total, op=dist.ReduceOp.SUM)
        self.sum, self.count = total.tolist()

    @property
    def avg(self):
        return self.sum / max(1, self.count)


def create_loaders(rank, world_size):
    if rank == 0:
        CIFAR10("data", download=True)
    dist.barrier()
    train = CIFAR10("data", train=True, transform=ToTensor())
    val = CIFAR10("data", train=False, transform=ToTensor())
    val = Subset(val, list(range(rank, len(val), world_size)))
    sampler = DistributedSampler(train, num_replicas=world_size, rank=rank, shuffle=True)
    train_loader = DataLoader(
        train, CONFIG["batch"], sampler=sampler, num_workers=CONFIG["workers"], pin_memory=True
    )
    val_loader = DataLoader(val, 2 * CONFIG["batch"], num_workers=CONFIG["workers"])
    return train_loader, val_loader, sampler


@torch.no_grad()
def evaluate(model, loader, device):
    model.eval()
    meters = defaultdict(AverageMeter)
    for x, y in loader:
        x, y = x.to(device), y.to(device)
        logits = model(x)
        meters["loss"].update(nn.functional.cross_entropy(logits, y).item(), len(y))
        meters["acc"].update((logits.argmax(-1) == y).float().mean().item(), len(y))
    for key in sorted(meters):
        meters[key].all_reduce(device)
    return {key: meter.avg for key, meter in meters.items()}


def main():
    dist.init_process_group("nccl")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    train_loader, val_loader, sampler = create_loaders(rank, world_size)
    net = nn.Sequential(nn.Flatten(), nn.Linear(3072, 512), nn.ReLU(), nn.Linear(512, 10))
    model = DDP(net.to(device), device_ids=[device.index])
    optimizer = torch.optim.SGD(model.parameters(), lr=CONFIG["lr"] * world_size, momentum=0.9)
    best = 0.0
    for epoch in range(CONFIG["epochs"]):
        sampler.set_epoch(epoch)
        model.train()
        for x, y in train_loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x.to(device)), y.to(device)).backward()
            optimizer.step()
        # The bare network: the parts may differ in length by one batch.
        metrics = evaluate(net, val_loader, device)
        if rank == 0:
            print(epoch, metrics)
            if metrics["acc"] > best:
                best = metrics["acc"]
                torch.save(net.state_dict(), "best.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
