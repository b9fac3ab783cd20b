import argparse
import os

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler
from torchvision import datasets, transforms


def init_weights(m):
    if isinstance(m, (nn.Conv2d, nn.Linear)):
        nn.init.xavier_normal_(m.weight)
        nn.init.zeros_(m.bias)


def quiet_norms(m):
    if isinstance(m, nn.BatchNorm2d):
        m.momentum = 0.05


def build(classes):
    net = nn.Sequential(nn.Conv2d(3, 64, 3, 2), nn.BatchNorm2d(64), nn.ReLU(), nn.Conv2d(64, 64, 3, 2),
                        nn.BatchNorm2d(64), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, classes))
    return net.apply(init_weights)


def main(args):
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    dist.init_process_group("nccl")
    ds = datasets.ImageFolder(args.data, transforms.Compose([transforms.Resize((64, 64)), transforms.ToTensor()]))
    sampler = DistributedSampler(ds)
    loader = DataLoader(ds, args.batch, sampler=sampler, num_workers=4)
    model = DDP(build(len(ds.classes)).cuda(), device_ids=[local_rank])
    model.apply(quiet_norms)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        for x, y in loader:
            loss = nn.functional.cross_entropy(model(x.cuda()), y.cuda())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if dist.get_rank() == 0:
            torch.save(model.module.state_dict(), "net.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("data")
    ap.add_argument("--epochs", type=int, default=20)
    ap.add_argument("--batch", type=int, default=128)
    main(ap.parse_args())
