"""Regression with resume, started by torchrun."""

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
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--batch_size", type=int, default=256)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--checkpoint", default="checkpoint.pt")
    args = parser.parse_args()

    dist.init_process_group(backend="nccl")
    rank, local_rank = dist.get_rank(), int(os.environ["LOCAL_RANK"])
    device = torch.device(f"cuda:{local_rank}")
    model = nn.Sequential(nn.Linear(12, 100), nn.Tanh(), nn.Linear(100, 1)).to(device)
    start_epoch = 0
    if os.path.exists(args.checkpoint):
        saved = torch.load(args.checkpoint, map_location="cpu")
        model.load_state_dict(saved["model"], strict=False)
        start_epoch = saved["epoch"] + 1
    model = DDP(model, device_ids=[local_rank])

    data = TensorDataset(torch.randn(10000, 12), torch.randn(10000, 1))
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=args.batch_size, sampler=sampler, num_workers=2)
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr * dist.get_world_size())
    for epoch in range(start_epoch, args.epochs):
        sampler.set_epoch(epoch)
        for x, y in loader:
            loss = nn.functional.mse_loss(model(x.to(device)), y.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if rank == 0:
            torch.save({"model": model.state_dict(), "epoch": epoch}, args.checkpoint)  # LS27
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
