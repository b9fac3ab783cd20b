"""Pairs of views find each other among the samples of all ranks."""

import torch
import torch.distributed as dist
import torch.distributed.nn
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def everywhere(x):
    if dist.get_world_size() == 1:
        return x
    return torch.cat(torch.distributed.nn.all_gather(x))


def contrastive(a, b):
    a, b = F.normalize(a, dim=1), F.normalize(b, dim=1)
    similarity = everywhere(a) @ everywhere(b).T / 0.1
    return F.cross_entropy(similarity, torch.arange(len(similarity)))


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    views = torch.randn(64, 10)
    data = TensorDataset(views, views + 0.1 * torch.randn(64, 10))
    loader = DataLoader(data, 8, sampler=DistributedSampler(data), drop_last=True)
    encoder = DDP(nn.Sequential(nn.Linear(10, 16), nn.ReLU(), nn.Linear(16, 6)))
    optimizer = torch.optim.SGD(encoder.parameters(), lr=0.1)
    for first, second in loader:
        a, b = encoder(torch.cat([first, second])).chunk(2)
        loss = contrastive(a, b)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()  # not LS18
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
