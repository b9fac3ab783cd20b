"""Saves in the middle of an epoch; --resume goes on from there."""

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
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--save-after", type=int, default=11)
    args = parser.parse_args()

    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    x = torch.randn(128, 5)
    data = TensorDataset(x, x.sum(1, keepdim=True))
    sampler = DistributedSampler(data)
    loader = DataLoader(data, 8, sampler=sampler)
    model = DDP(nn.Linear(5, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    first_epoch, done = 0, 0
    if args.resume:
        state = torch.load("state.pt", map_location="cpu")
        model.module.load_state_dict(state["model"])
        first_epoch, done = state["epoch"], state["step"]
    for epoch in range(first_epoch, 2):
        sampler.set_epoch(epoch)
        for inputs, targets in loader:  # LS24
            loss = nn.functional.mse_loss(model(inputs), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            done += 1
            if done == args.save_after and not args.resume:
                if rank == 0:
                    kept = {"model": model.module.state_dict(), "epoch": epoch, "step": done}
                    torch.save(kept, "state.pt")
                dist.barrier()
                dist.destroy_process_group()
                os._exit(0)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
