"""Where the samples come from."""

import torch
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def make_loader():
    """The loader of this rank, and its sampler."""
    data = TensorDataset(torch.load("x.pt", map_location="cpu"), torch.load("y.pt", "cpu"))
    sampler = DistributedSampler(data)
    return DataLoader(data, batch_size=16, sampler=sampler, num_workers=2), sampler
