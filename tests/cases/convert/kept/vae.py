import torch
import torch.nn.functional as F
from torch import nn, optim
from torch.utils.data import DataLoader
from torchvision import datasets, transforms


class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.encode = nn.Linear(784, 40)
        self.decode = nn.Linear(20, 784)

    def forward(self, x):
        mu, logvar = self.encode(x.view(-1, 784)).chunk(2, dim=1)
        z = mu + torch.randn_like(mu) * torch.exp(0.5 * logvar)
        return torch.sigmoid(self.decode(z)), mu, logvar


def loss_function(recon, x, mu, logvar):
    bce = F.binary_cross_entropy(recon, x.view(-1, 784), reduction="sum")
    return bce - 0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp())


device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
loader = DataLoader(datasets.MNIST("data", transform=transforms.ToTensor()), 128, shuffle=True)
model = VAE().to(device)
optimizer = optim.Adam(model.parameters(), lr=1e-3)


def train(epoch):
    model.train()
    total = 0
    for batch, (data, _) in enumerate(loader):
        data = data.to(device)
        optimizer.zero_grad()
        loss = loss_function(*[data if p is None else p for p in [*model(data)[:1], data, *model(data)[1:]]])
        loss.backward()
        total += loss.item()
        optimizer.step()
    print(epoch, total / len(loader.dataset))


if __name__ == "__main__":
    for epoch in range(1, 11):
        train(epoch)
