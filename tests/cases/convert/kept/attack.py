"""Adversarial training: the inputs follow their gradient, the weights follow the optimizer."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def pgd(model, x, y, eps=8 / 255, alpha=2 / 255, steps=7):
    delta = torch.zeros_like(x, requires_grad=True)
    for _ in range(steps):
        F.cross_entropy(model(x + delta), y).backward()
        delta.data = (delta + alpha * delta.grad.sign()).clamp(-eps, eps)
        delta.grad.zero_()
    return delta.detach()


def trades(model, x):
    x_adv = x + 0.001 * torch.randn_like(x)
    x_adv.requires_grad_()
    loss = F.mse_loss(model(x_adv), model(x))
    return torch.autograd.grad(loss, [x_adv])[0]


def main():
    model = nn.Sequential(nn.Flatten(), nn.Linear(3072, 10)).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    data = TensorDataset(torch.rand(50000, 3, 32, 32), torch.randint(0, 10, (50000,)))
    for epoch in range(30):
        for x, y in DataLoader(data, batch_size=128, shuffle=True):
            x, y = x.cuda(), y.cuda()
            delta = pgd(model, x, y) + 0.01 * trades(model, x)
            optimizer.zero_grad()
            F.cross_entropy(model(x + delta), y).backward()
            optimizer.step()


if __name__ == "__main__":
    main()
