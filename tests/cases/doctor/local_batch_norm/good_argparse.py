"""Segmentation with a network of the project's own, eight images per GPU."""

import argparse
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


class Block(nn.Module):
    def __init__(self, before, after):
        super().__init__()
        self.conv = nn.Conv2d(before, after, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(after)

    def forward(self, x):
        return torch.relu(self.norm(self.conv(x)))


class SegNet(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.body = nn.Sequential(Block(3, 32), Block(32, 64), Block(64, 64))
        self.head = nn.Conv2d(64, classes, 1)

    def forward(self, x):
        return self.head(self.body(x))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=50)
    parser.add_argument("--batch-size", type=int, default=8, help="images per GPU")
    parser.add_argument("--lr", type=float, default=0.01)
    args = parser.parse_args()

    dist.init_process_group("nccl")
    local_rank = int(os.environ["LOCAL_RANK"])
    device = torch.device("cuda", local_rank)
    model = nn.SyncBatchNorm.convert_sync_batchnorm(SegNet(19))
    model = model.to(device)
    model = DDP(model, device_ids=[local_rank])
    data = TensorDataset(torch.randn(64, 3, 128, 128), torch.randint(19, (64, 128, 128)))
    sampler = DistributedSampler(data)
    loader = DataLoader(data, args.batch_size, sampler=sampler, num_workers=4, drop_last=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr * dist.get_world_size())
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        for images, masks in loader:
            loss = nn.functional.cross_entropy(model(images.to(device)), masks.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if dist.get_rank() == 0:
            torch.save(model.module.state_dict(), "segnet.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
