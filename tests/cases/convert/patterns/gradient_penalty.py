"""A critic with a penalty on its gradient with respect to the inputs."""
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
loader = DataLoader(TensorDataset(torch.randn(96, 2) + 2), batch_size=16, shuffle=True)
critic = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 1))
maker = nn.Sequential(nn.Linear(3, 16), nn.ReLU(), nn.Linear(16, 2))
critic_optimizer = torch.optim.Adam(critic.parameters(), lr=1e-3)
maker_optimizer = torch.optim.Adam(maker.parameters(), lr=1e-3)


def penalty(real, fake):
    mix = torch.rand(len(real), 1)
    between = (mix * real + (1 - mix) * fake).requires_grad_(True)
    scores = critic(between)
    (slope,) = torch.autograd.grad(scores, between, torch.ones_like(scores), create_graph=True)
    return ((slope.norm(2, dim=1) - 1) ** 2).mean()


for epoch in range(2):
    for i, (real,) in enumerate(loader):
        fake = maker(torch.randn(len(real), 3))
        loss = critic(fake.detach()).mean() - critic(real).mean() + 10 * penalty(real, fake.detach())
        critic_optimizer.zero_grad()
        loss.backward()
        critic_optimizer.step()
        if i % 2 == 0:
            maker_optimizer.zero_grad()
            (-critic(fake).mean()).backward()
            maker_optimizer.step()
    print(epoch, f"{loss.item():.4f}")
