# refused: batch_loss
import argparse

import torch
import torch.nn.functional as F
import torchvision
from torch import nn
from torch.utils.data import DataLoader


class NTXent(nn.Module):
    def __init__(self, temperature):
        super().__init__()
        self.temperature = temperature

    def forward(self, a, b):
        z = F.normalize(torch.cat([a, b]), dim=1)
        sim = torch.mm(z, z.t()) / self.temperature
        n = a.size(0)
        sim.masked_fill_(torch.eye(2 * n, dtype=torch.bool, device=z.device), -9e15)
        targets = torch.cat([torch.arange(n, 2 * n), torch.arange(n)]).to(z.device)
        return F.cross_entropy(sim, targets)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=100)
    args = parser.parse_args()
    aug = torchvision.transforms.Compose(
        [torchvision.transforms.RandomResizedCrop(32), torchvision.transforms.ToTensor()]
    )
    data = torchvision.datasets.CIFAR10(".", transform=lambda im: (aug(im), aug(im)))
    loader = DataLoader(data, 512, shuffle=True, drop_last=True)
    model = torchvision.models.resnet18(num_classes=128).cuda()
    criterion = NTXent(0.5)
    optimizer = torch.optim.Adam(model.parameters(), 3e-4)
    for epoch in range(args.epochs):
        for (a, b), _ in loader:
            loss = criterion(model(a.cuda()), model(b.cuda()))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


if __name__ == "__main__":
    main()
