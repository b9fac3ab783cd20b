import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

world_size = int(os.environ.get("WORLD_SIZE", 1))
rank = int(os.environ.get("RANK", 0))
if world_size > 1:
    dist.init_process_group("gloo")

class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder, self.decoder = nn.Linear(12, 8), nn.Linear(4, 12)

    def forward(self, x):
        mean, logvar = self.encoder(x).chunk(2, dim=1)
        z = mean + torch.randn_like(mean) * torch.exp(0.5 * logvar)
        return self.decoder(z), mean, logvar


def loss_function(x, output, mean, logvar):
    divergence = -0.5 * torch.sum(1 + logvar - mean.pow(2) - logvar.exp())
    return nn.functional.mse_loss(output, x, reduction="sum") + divergence


data = TensorDataset(torch.randn(128, 12))
sampler = DistributedSampler(data) if world_size > 1 else None
loader = DataLoader(data, batch_size=16 // world_size, shuffle=sampler is None, sampler=sampler)
test_data = TensorDataset(torch.randn(64, 12))
test_sampler = DistributedSampler(test_data, shuffle=False) if world_size > 1 else None
test_loader = DataLoader(test_data, batch_size=16, sampler=test_sampler)
model = VAE()
if world_size > 1:
    model = DistributedDataParallel(model)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

for epoch in range(1, 5):
    model.train()
    if sampler is not None:
        sampler.set_epoch(epoch)
    for (x,) in loader:
        optimizer.zero_grad()
        loss = loss_function(x, *model(x))
        loss.backward()
        optimizer.step()
    model.eval()
    total = torch.zeros((), dtype=torch.float64)
    with torch.no_grad():
        for (x,) in test_loader:
            total += loss_function(x, *model(x)).item()
    if world_size > 1:
        dist.all_reduce(total)
    if rank == 0:
        print("test loss", total.item() / len(test_loader.dataset))
        with torch.no_grad():
            decoder = model.module.decoder if world_size > 1 else model.decoder
            picture = decoder(torch.randn(8, 4))
        print("mean of samples", picture.mean().item())
