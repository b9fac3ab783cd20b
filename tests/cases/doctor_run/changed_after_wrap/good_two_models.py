"""A generator whose output layer is replaced, against a critic whose body thaws."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


class Net(nn.Module):
    def __init__(self, inside, outside):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(inside, 8), nn.LeakyReLU(0.2))
        self.head = nn.Linear(8, outside)

    def forward(self, x):
        return self.head(self.body(x))


dist.init_process_group("gloo")
torch.manual_seed(7 + dist.get_rank())
generator, critic = Net(4, 6), Net(6, 1)
critic.body.requires_grad_(False)
generator.head = nn.Linear(8, 6)
critic.body.requires_grad_(True)
generator = DDP(generator)  # not LS11
critic = DDP(critic)  # not LS11

data = TensorDataset(torch.randn(64, 6, generator=torch.Generator().manual_seed(0)))
loader = DataLoader(data, 8, sampler=DistributedSampler(data))
g_optimizer = torch.optim.Adam(generator.parameters(), lr=1e-3)
c_optimizer = torch.optim.Adam(critic.parameters(), lr=1e-3)
for (real,) in loader:
    fake = generator(torch.randn(len(real), 4))
    loss = critic(fake.detach()).mean() - critic(real).mean()
    c_optimizer.zero_grad()
    loss.backward()
    c_optimizer.step()

    critic.requires_grad_(False)
    loss = -critic.module(fake).mean()
    g_optimizer.zero_grad()
    loss.backward()
    g_optimizer.step()  # not LS10
    critic.requires_grad_(True)
dist.destroy_process_group()
