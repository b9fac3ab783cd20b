# refused: batch_loss
import torch
from torch import nn
from torch.utils.data import DataLoader

from torchvision.datasets import STL10
from torchvision import models


def off_diagonal(x):
    n, _ = x.shape
    return x.flatten()[:-1].view(n - 1, n + 1)[:, 1:].flatten()


class Twins(nn.Module):
    def __init__(self, lambd=0.005):
        super().__init__()
        self.backbone = models.resnet50(num_classes=2048)
        self.bn = nn.BatchNorm1d(2048, affine=False)
        self.lambd = lambd

    def forward(self, first, second):
        z1 = self.backbone(first)
        z2 = self.backbone(second)
        c = self.bn(z1).T @ self.bn(z2)
        c.div_(z1.shape[0])
        on = (torch.diagonal(c) - 1).pow(2).sum()
        return on + self.lambd * off_diagonal(c).pow(2).sum()


def two_views(image):
    return image, image.flip(-1)


class Config:
    epochs = 100
    batch_size = 256


def train(config):
    model = Twins().cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9)
    loader = DataLoader(STL10(".", transform=two_views), config.batch_size, shuffle=True)
    scaler = torch.cuda.amp.GradScaler()
    for epoch in range(config.epochs):
        for (y1, y2), _ in loader:
            optimizer.zero_grad()
            with torch.cuda.amp.autocast():
                loss = model(y1.cuda(), y2.cuda())
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()


if __name__ == "__main__":
    train(Config())
