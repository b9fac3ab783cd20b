"""The seeding is in a module of its own."""

import os

import torch
import torch.distributed as dist
from common import seed_all
from network import Classifier
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def train(model, loader, sampler, optimizer, device, epochs):
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        for tokens, labels in loader:
            loss = cross_entropy(model(tokens.to(device)), labels.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


def main():
    dist.init_process_group(backend="nccl")
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    seed_all(7)
    model = DDP(Classifier(20000, 4).to(device), device_ids=[device.index])
    data = TensorDataset(torch.randint(20000, (4000, 128)), torch.randint(4, (4000,)))
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=32, sampler=sampler, num_workers=2)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-5)
    train(model, loader, sampler, optimizer, device, epochs=3)
    if dist.get_rank() == 0:
        torch.save(model.module.state_dict(), "classifier.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
