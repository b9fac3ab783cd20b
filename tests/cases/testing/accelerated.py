"""Accelerate: the script gives the global batch, and Accelerate divides it."""

import argparse

import torch
from accelerate import Accelerator, DataLoaderConfiguration
from accelerate.utils import set_seed
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--split", type=int, default=1)
set_seed(0)
config = DataLoaderConfiguration(split_batches=bool(parser.parse_args().split))
accelerator = Accelerator(dataloader_config=config)
data = TensorDataset(torch.randn(64, 6), torch.randint(0, 3, (64,)))
model = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 3))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
loader = DataLoader(data, 16, shuffle=True)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
for _ in range(2):
    for inputs, targets in loader:
        optimizer.zero_grad()
        accelerator.backward(nn.functional.cross_entropy(model(inputs), targets))
        optimizer.step()
accelerator.end_training()
