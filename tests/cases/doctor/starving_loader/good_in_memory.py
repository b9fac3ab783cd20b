"""All samples are tensors in memory: workers would only copy them about."""

import os

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, TensorDataset
from torch.utils.data.distributed import DistributedSampler


class Text(Dataset):
    """Pieces of one long array."""

    def __init__(self, path, length):
        self.tokens = torch.from_numpy(np.load(path).astype(np.int64))
        self.length = length

    def __len__(self):
        return len(self.tokens) // self.length - 1

    def __getitem__(self, index):
        start = index * self.length
        piece = self.tokens[start : start + self.length + 1]
        return piece[:-1], piece[1:]


def fit(model, data, device, loss_of):
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=64, sampler=sampler, drop_last=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for epoch in range(5):
        sampler.set_epoch(epoch)
        for x, y in loader:
            loss = loss_of(model(x.to(device)), y.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


def main():
    dist.init_process_group("nccl")
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    table = TensorDataset(torch.randn(10000, 30), torch.randn(10000, 1))
    model = DDP(nn.Linear(30, 1).to(device), device_ids=[device.index])
    fit(model, table, device, nn.functional.mse_loss)

    words = nn.Sequential(nn.Embedding(5000, 64), nn.Linear(64, 5000)).to(device)
    words = DDP(words, device_ids=[device.index])
    text = Text("tokens.npy", 128)
    fit(words, text, device, lambda a, b: nn.functional.cross_entropy(a.flatten(0, 1), b.flatten()))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
