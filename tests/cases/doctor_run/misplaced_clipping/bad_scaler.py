"""Mixed precision that clips what the scaler has multiplied, and adds up whole losses."""

from contextlib import nullcontext

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(128, 32), torch.randint(10, (128,)))
    sampler = DistributedSampler(data)
    loader = DataLoader(data, 8, sampler=sampler)
    model = DDP(nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 10)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu")
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for number, (x, y) in enumerate(loader, 1):
            with model.no_sync() if number % 2 else nullcontext():
                with torch.autocast("cpu", dtype=torch.bfloat16):
                    loss = nn.functional.cross_entropy(model(x), y)
                scaler.scale(loss).backward()
            if number % 2 == 0:
                nn.utils.clip_grad_norm_(model.parameters(), 0.5)  # LS19
                scaler.step(optimizer)  # LS16
                scaler.update()
                optimizer.zero_grad()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
