"""Keeps the global batch on any number of ranks by accumulating less; dropout; batches of a class."""

from contextlib import nullcontext
from dataclasses import dataclass
from itertools import islice

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


@dataclass(frozen=True)
class Batch:
    inputs: Tensor
    targets: Tensor


def collate(rows):
    return Batch(*map(torch.stack, zip(*rows)))


def main(accumulate=4):
    dist.init_process_group("gloo")
    accumulate //= dist.get_world_size()
    torch.manual_seed(0)
    x = torch.randn(96, 12)
    data = TensorDataset(x, x[:, :1] * 2)
    sampler = DistributedSampler(data)
    loader = DataLoader(data, 4, sampler=sampler, collate_fn=collate)
    model = DDP(nn.Sequential(nn.Linear(12, 16), nn.ReLU(), nn.Dropout(0.3), nn.Linear(16, 1)))
    torch.manual_seed(dist.get_rank())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        batches = iter(loader)
        for _ in range(len(loader) // accumulate):
            for number, batch in enumerate(islice(batches, accumulate), 1):
                with nullcontext() if number == accumulate else model.no_sync():
                    loss = nn.functional.mse_loss(model(batch.inputs), batch.targets)
                    (loss / accumulate).backward()
            optimizer.step()  # not LS16, LS20, LS32
            optimizer.zero_grad()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
