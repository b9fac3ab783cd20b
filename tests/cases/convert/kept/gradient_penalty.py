"""WGAN with a gradient penalty."""

import torch
from torch import nn
from torch.utils.data import DataLoader
from torchvision import datasets, transforms


def gradient_penalty(critic, real, fake):
    alpha = torch.rand(real.size(0), 1, device=real.device)
    mixed = (alpha * real + (1 - alpha) * fake).requires_grad_(True)
    gradients = torch.autograd.grad(critic(mixed).sum(), mixed, create_graph=True)[0]
    return ((gradients.norm(2, dim=1) - 1) ** 2).mean()


loader = DataLoader(
    datasets.MNIST("data", transform=transforms.ToTensor()), batch_size=64, shuffle=True
)
G = nn.Sequential(nn.Linear(100, 784), nn.Tanh()).cuda()
D = nn.Sequential(nn.Linear(784, 1)).cuda()
opt_g, opt_d = torch.optim.Adam(G.parameters()), torch.optim.Adam(D.parameters())
for epoch in range(20):
    for i, (x, _) in enumerate(loader):
        real = x.flatten(1).cuda()
        fake = G(torch.randn(len(real), 100, device="cuda"))
        loss_d = D(fake.detach()).mean() - D(real).mean()
        loss_d = loss_d + 10 * gradient_penalty(D, real, fake.detach())
        opt_d.zero_grad()
        loss_d.backward()
        opt_d.step()
        if i % 5 == 0:
            opt_g.zero_grad()
            (-D(G(torch.randn(len(real), 100, device="cuda"))).mean()).backward()
            opt_g.step()
