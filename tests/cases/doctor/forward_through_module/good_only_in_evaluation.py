import argparse
import os

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler
from torchvision import datasets, transforms


class Prototypes(nn.Module):
    def __init__(self, classes, dim=64):
        super().__init__()
        self.trunk = nn.Sequential(nn.Conv2d(3, 32, 5, 2), nn.ReLU(), nn.Conv2d(32, dim, 5, 2), nn.ReLU(),
                                   nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.centres = nn.Parameter(torch.randn(classes, dim))

    def forward(self, x):
        return -torch.cdist(self.trunk(x), self.centres)

    def compute_loss(self, x, y):
        return nn.functional.cross_entropy(self(x), y)


@torch.no_grad()
def evaluate(model, loader, device):
    model.eval()
    total = torch.zeros(2, device=device)
    for x, y in loader:
        loss = model.module.compute_loss(x.to(device), y.to(device))
        total += torch.stack([loss * len(y), loss.new_tensor(len(y))])
    dist.all_reduce(total)
    return (total[0] / total[1]).item()


def main(args):
    local_rank = int(os.environ["LOCAL_RANK"])
    device = torch.device(f"cuda:{local_rank}")
    torch.cuda.set_device(device)
    dist.init_process_group("nccl")
    tf = transforms.Compose([transforms.Resize((84, 84)), transforms.ToTensor()])
    ds, val = datasets.ImageFolder(args.data + "/train", tf), datasets.ImageFolder(args.data + "/val", tf)
    sampler = DistributedSampler(ds)
    loader = DataLoader(ds, args.bs, sampler=sampler, num_workers=2)
    val_loader = DataLoader(val, args.bs, sampler=DistributedSampler(val, shuffle=False))
    model = DDP(Prototypes(len(ds.classes)).to(device), device_ids=[local_rank])
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        model.train()
        for x, y in loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x.to(device)), y.to(device)).backward()
            optimizer.step()
        val_loss = evaluate(model, val_loader, device)
        if dist.get_rank() == 0:
            print(epoch, round(val_loss, 4))
            torch.save(model.module.state_dict(), "prototypes.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--data", default="/data/omniglot_like")
    ap.add_argument("--epochs", default=15, type=int)
    ap.add_argument("--bs", default=64, type=int)
    main(ap.parse_args())
