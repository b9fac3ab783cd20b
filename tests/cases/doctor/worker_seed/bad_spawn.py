"""A lambda that seeds the workers with their numbers, in every epoch and on every rank."""

import random

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler


class Sentences(Dataset):
    """Lines of numbers; some words are left out at random."""

    def __init__(self, path, length=64):
        with open(path) as file:
            self.lines = [[int(word) for word in line.split()] for line in file]
        self.length = length

    def __len__(self):
        return len(self.lines)

    def __getitem__(self, index):
        *words, label = self.lines[index]
        words = [0 if random.random() < 0.15 else word for word in words]
        words = (words + [0] * self.length)[: self.length]
        return torch.tensor(words), label


def run(rank, world_size, path):
    dist.init_process_group("nccl", "tcp://localhost:23456", rank=rank, world_size=world_size)
    torch.cuda.set_device(rank)
    data = Sentences(path)
    sampler = DistributedSampler(data, num_replicas=world_size, rank=rank)
    loader = DataLoader(
        data,
        batch_size=128,
        sampler=sampler,
        num_workers=4,
        worker_init_fn=lambda worker: random.seed(10 + worker),  # LS21
    )
    model = nn.Sequential(nn.EmbeddingBag(30000, 128), nn.Linear(128, 5)).cuda(rank)
    model = DDP(model, device_ids=[rank])
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    for epoch in range(10):
        sampler.set_epoch(epoch)
        for words, labels in loader:
            loss = nn.functional.cross_entropy(model(words.cuda(rank)), labels.cuda(rank))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    if rank == 0:
        torch.save(model.module.state_dict(), "bag.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    count = torch.cuda.device_count()
    mp.spawn(run, args=(count, "train.txt"), nprocs=count)
