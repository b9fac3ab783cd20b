"""Training that can be resumed, started by torchrun."""

import argparse
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=90)
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--resume", default="")
    parser.add_argument("--gpu", type=int, default=None)
    args = parser.parse_args()

    dist.init_process_group("nccl")
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    model = nn.Sequential(nn.Linear(100, 50), nn.ReLU(), nn.Linear(50, 10)).cuda()
    lr = args.lr * args.batch_size * dist.get_world_size() / 256
    optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)
    start = 0
    if args.resume:
        if args.gpu is None:
            # One process for all GPUs.
            checkpoint = torch.load(args.resume)
        else:
            checkpoint = torch.load(args.resume, map_location=f"cuda:{args.gpu}")
        model.load_state_dict(checkpoint["model"])
        optimizer.load_state_dict(checkpoint["optimizer"])
        start = checkpoint["epoch"] + 1
    model = DDP(model, device_ids=[local_rank])

    data = TensorDataset(torch.randn(5000, 100), torch.randint(10, (5000,)))
    sampler = DistributedSampler(data)
    loader = DataLoader(data, args.batch_size, sampler=sampler, num_workers=4, pin_memory=True)
    for epoch in range(start, args.epochs):
        sampler.set_epoch(epoch)
        for inputs, labels in loader:
            inputs, labels = inputs.cuda(non_blocking=True), labels.cuda(non_blocking=True)
            loss = nn.functional.cross_entropy(model(inputs), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if dist.get_rank() == 0:
            state = {
                "model": model.module.state_dict(),
                "optimizer": optimizer.state_dict(),
                "epoch": epoch,
            }
            torch.save(state, "checkpoint.pth")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
