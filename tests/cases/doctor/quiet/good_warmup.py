"""Linear warm-up to a rate for the global batch, then a cosine; one scheduler step per update."""

import math
import os
from argparse import ArgumentParser

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn import SyncBatchNorm
from torch.nn.parallel import DistributedDataParallel
from torch.optim.lr_scheduler import CosineAnnealingLR, LambdaLR, LinearLR, SequentialLR
from torch.utils.data import DataLoader, DistributedSampler
from torchvision.datasets import CIFAR100
from torchvision.models import resnet18
from torchvision.transforms import v2


def parse():
    p = ArgumentParser()
    p.add_argument("--root", default="data")
    p.add_argument("--batch", type=int, default=128, help="images of one GPU")
    p.add_argument("--lr", type=float, default=0.1, help="for 256 images")
    p.add_argument("--epochs", type=int, default=100)
    p.add_argument("--warmup", type=int, default=5)
    p.add_argument("--shape", choices=["sequential", "lambda"], default="sequential")
    return p.parse_args()


def make_scheduler(optimizer, shape, warmup, total):
    if shape == "sequential":
        return SequentialLR(
            optimizer,
            [
                LinearLR(optimizer, start_factor=0.01, total_iters=warmup),
                CosineAnnealingLR(optimizer, T_max=total - warmup),
            ],
            milestones=[warmup],
        )

    def factor(step):
        if step < warmup:
            return (step + 1) / warmup
        return 0.5 * (1 + math.cos(math.pi * (step - warmup) / (total - warmup)))

    return LambdaLR(optimizer, lr_lambda=factor)


def main():
    args = parse()
    dist.init_process_group(backend="nccl")
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    device = torch.device("cuda", torch.cuda.current_device())
    world_size = dist.get_world_size()
    transform = v2.Compose(
        [v2.RandomCrop(32, padding=4), v2.RandomHorizontalFlip(), v2.ToImage(), v2.ToDtype(torch.float32, scale=True)]
    )
    train_data = CIFAR100(args.root, train=True, transform=transform)
    train_sampler = DistributedSampler(train_data)
    train_loader = DataLoader(
        train_data, args.batch, sampler=train_sampler, num_workers=4, pin_memory=True, drop_last=True
    )
    model = SyncBatchNorm.convert_sync_batchnorm(resnet18(num_classes=100)).to(device)
    model = DistributedDataParallel(model, device_ids=[device.index])
    lr = args.lr * args.batch * world_size / 256
    optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9, weight_decay=5e-4)
    steps = len(train_loader)
    scheduler = make_scheduler(optimizer, args.shape, args.warmup * steps, args.epochs * steps)
    for epoch in range(args.epochs):
        train_sampler.set_epoch(epoch)
        for images, labels in train_loader:
            images = images.to(device, non_blocking=True)
            labels = labels.to(device, non_blocking=True)
            loss = F.cross_entropy(model(images), labels)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            scheduler.step()
        if dist.get_rank() == 0:
            print(f"epoch {epoch}, lr {scheduler.get_last_lr()[0]:.5f}, loss {loss.item():.4f}")
    if dist.get_rank() == 0:
        torch.save(model.module.state_dict(), "resnet18.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
