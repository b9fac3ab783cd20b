"""Shards of tar files through WebDataset, which hands each node and worker its own."""

import argparse
import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
import torchvision.transforms as T
import webdataset as wds
from torch.nn.parallel import DistributedDataParallel as DDP
from torchvision.models import resnet50


def make_loader(args, world_size):
    transform = T.Compose([T.RandomResizedCrop(224), T.RandomHorizontalFlip(), T.ToTensor()])
    dataset = (
        wds.WebDataset(
            args.shards,
            resampled=True,
            shardshuffle=True,
            nodesplitter=wds.split_by_node,
        )
        .shuffle(5000)
        .decode("pil")
        .to_tuple("jpg;png", "cls")
        .map_tuple(transform, int)
        .batched(args.batch_size, partial=False)
    )
    loader = wds.WebLoader(dataset, batch_size=None, num_workers=args.workers, pin_memory=True)
    loader = loader.unbatched().shuffle(1000).batched(args.batch_size)
    # Shards are drawn with replacement: every rank gets exactly this many batches.
    return loader.with_epoch(args.samples // (args.batch_size * world_size))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--shards", default="/data/imagenet-{000000..000146}.tar")
    parser.add_argument("--samples", type=int, default=1281167)
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--epochs", type=int, default=90)
    parser.add_argument("--base-lr", type=float, default=0.1)
    args = parser.parse_args()

    dist.init_process_group("nccl")
    rank = dist.get_rank()
    world_size = dist.get_world_size()
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    torch.manual_seed(rank)

    loader = make_loader(args, world_size)
    model = torch.nn.SyncBatchNorm.convert_sync_batchnorm(resnet50()).cuda()
    model = DDP(model, device_ids=[local_rank], static_graph=True)
    lr = args.base_lr * args.batch_size * world_size / 256
    optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9, nesterov=True)
    steps = args.epochs * (args.samples // (args.batch_size * world_size))
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=lr, total_steps=steps)

    for epoch in range(args.epochs):
        model.train()
        for images, labels in loader:
            images, labels = images.cuda(non_blocking=True), labels.cuda(non_blocking=True)
            loss = F.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
        if rank == 0:
            torch.save({"model": model.module.state_dict(), "epoch": epoch}, "checkpoint.pt")
            print(f"epoch {epoch} finished")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
