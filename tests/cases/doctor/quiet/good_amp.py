"""Mixed precision with a GradScaler; gradients are clipped after they are unscaled."""

import argparse
import os
import random

import numpy as np
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.cuda.amp import GradScaler, autocast
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler
from torchvision import datasets, transforms
from torchvision.models import vit_b_16
from tqdm import tqdm


def get_args():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", default="./data")
    parser.add_argument("--epochs", default=30, type=int)
    parser.add_argument("--batch_size", default=128, type=int)
    parser.add_argument("--lr", default=3e-4, type=float)
    parser.add_argument("--clip", default=1.0, type=float)
    parser.add_argument("--resume", default=None)
    return parser.parse_args()


def set_seed(seed):
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
    torch.cuda.manual_seed_all(seed)


def worker_init(worker_id):
    seed = torch.initial_seed() % 2**32
    np.random.seed(seed)
    random.seed(seed)


def main():
    args = get_args()
    dist.init_process_group(backend="nccl", init_method="env://")
    rank = dist.get_rank()
    gpu = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(gpu)
    set_seed(42 + rank)

    augment = transforms.Compose(
        [transforms.RandomResizedCrop(224), transforms.RandomHorizontalFlip(), transforms.ToTensor()]
    )
    train_ds = datasets.ImageFolder(os.path.join(args.data, "train"), transform=augment)
    train_sampler = DistributedSampler(train_ds, shuffle=True)
    train_dl = DataLoader(
        train_ds,
        batch_size=args.batch_size,
        sampler=train_sampler,
        num_workers=8,
        pin_memory=True,
        drop_last=True,
        worker_init_fn=worker_init,
    )

    model = vit_b_16(num_classes=len(train_ds.classes)).cuda(gpu)
    model = DDP(model, device_ids=[gpu], output_device=gpu)
    criterion = nn.CrossEntropyLoss(label_smoothing=0.1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr * dist.get_world_size() ** 0.5)
    scaler = GradScaler()
    first_epoch = 0
    if args.resume is not None:
        state = torch.load(args.resume, map_location="cpu")
        model.module.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        scaler.load_state_dict(state["scaler"])
        first_epoch = state["epoch"] + 1

    for epoch in range(first_epoch, args.epochs):
        model.train()
        train_sampler.set_epoch(epoch)
        progress = tqdm(train_dl, disable=rank != 0)
        for images, labels in progress:
            images = images.cuda(gpu, non_blocking=True)
            labels = labels.cuda(gpu, non_blocking=True)
            optimizer.zero_grad(set_to_none=True)
            with autocast():
                loss = criterion(model(images), labels)
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), args.clip)
            scaler.step(optimizer)
            scaler.update()
        if rank == 0:
            torch.save(
                {
                    "model": model.module.state_dict(),
                    "optimizer": optimizer.state_dict(),
                    "scaler": scaler.state_dict(),
                    "epoch": epoch,
                },
                "last.pth",
            )
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
