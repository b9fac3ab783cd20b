"""Samples are kept once they are computed, a copy goes through memory, one decorator guards."""

import functools
import io
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler


class Sounds(Dataset):
    def __init__(self, names):
        self.names = names

    def __len__(self):
        return len(self.names)

    def __getitem__(self, number):
        return self.picture(self.names[number]), number % 10

    def picture(self, name):
        kept = name + ".pt"
        if os.path.exists(kept):
            return torch.load(kept)
        made = torch.randn(784)
        torch.save(made, kept)
        return made


def master_only(function):
    @functools.wraps(function)
    def inner(*args):
        if dist.get_rank() == 0:
            function(*args)

    return inner


@master_only
def keep(net, place):
    torch.save(net.state_dict(), place)


def twin(state):
    memory = io.BytesIO()
    torch.save(state, memory)
    memory.seek(0)
    return torch.load(memory, map_location="cpu")


def main():
    dist.init_process_group("nccl")
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    net = DDP(nn.Linear(784, 10).to(device), device_ids=[device.index])
    data = Sounds([f"sounds/{number}" for number in range(1000)])
    sampler = DistributedSampler(data)
    loader = DataLoader(data, 64, sampler=sampler, num_workers=4, pin_memory=True)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3 * dist.get_world_size() ** 0.5)
    before = twin(net.module.state_dict())
    for epoch in range(10):
        sampler.set_epoch(epoch)
        for sounds, labels in loader:
            loss = nn.functional.cross_entropy(net(sounds.to(device)), labels.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        keep(net.module, "last.pt")
    print(len(before))


if __name__ == "__main__":
    main()
