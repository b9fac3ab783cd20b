"""Products of weights with themselves say nothing about the batch; nor do Gram matrices."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader
from torchvision import datasets, models, transforms


def orthogonality(model):
    penalty = 0.0
    for name, w in model.named_parameters():
        if w.dim() == 2:
            penalty = penalty + (w @ w.t() - torch.eye(w.size(0), device=w.device)).pow(2).sum()
    return penalty


def gram(y):
    b, c, h, w = y.size()
    features = y.view(b, c, h * w)
    return features.bmm(features.transpose(1, 2)) / (c * h * w)


class Cosine(nn.Module):
    def __init__(self, inputs, classes):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(classes, inputs))

    def forward(self, x):
        return 16 * F.normalize(x) @ F.normalize(self.weight).t()


def main():
    loader = DataLoader(datasets.FakeData(transform=transforms.ToTensor()), 32, shuffle=True)
    net, head = models.resnet18(num_classes=64).cuda(), Cosine(64, 10).cuda()
    optimizer = torch.optim.SGD([*net.parameters(), *head.parameters()], lr=0.1)
    style = gram(torch.rand(1, 3, 224, 224)).cuda()
    for epoch in range(2):
        for x, y in loader:
            x = x.cuda()
            loss = F.cross_entropy(head(net(x)), y.cuda()) + 1e-4 * orthogonality(net)
            loss = loss + F.mse_loss(gram(x), style.expand(len(x), -1, -1))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


if __name__ == "__main__":
    main()
