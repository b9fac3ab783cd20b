from __future__ import print_function
import argparse
import os
import torch
import torch.utils.data
from torch import nn, optim
from torch.nn import functional as F
from torchvision import datasets, transforms
from torchvision.utils import save_image


parser = argparse.ArgumentParser(description='variational autoencoder of digits')
parser.add_argument('--batch-size', type=int, default=100, metavar='N')
parser.add_argument('--epochs', type=int, default=3, metavar='N')
parser.add_argument('--no-cuda', action='store_true', default=False)
parser.add_argument('--seed', type=int, default=5, metavar='S')
parser.add_argument('--log-interval', type=int, default=5, metavar='N')
args = parser.parse_args()
args.cuda = not args.no_cuda and torch.cuda.is_available()

torch.manual_seed(args.seed)

device = torch.device("cuda" if args.cuda else "cpu")
os.makedirs('pictures', exist_ok=True)

kwargs = {'num_workers': 1, 'pin_memory': True} if args.cuda else {}
train_loader = torch.utils.data.DataLoader(
    datasets.MNIST('data', train=True, download=True, transform=transforms.ToTensor()),
    batch_size=args.batch_size, shuffle=True, **kwargs)
test_loader = torch.utils.data.DataLoader(
    datasets.MNIST('data', train=False, transform=transforms.ToTensor()),
    batch_size=args.batch_size, shuffle=False, **kwargs)


class Vae(nn.Module):
    def __init__(self, code=12):
        super(Vae, self).__init__()
        self.inner = nn.Linear(784, 128)
        self.mean = nn.Linear(128, code)
        self.spread = nn.Linear(128, code)
        self.outer = nn.Linear(code, 128)
        self.pixels = nn.Linear(128, 784)

    def encode(self, x):
        h = torch.relu(self.inner(x))
        return self.mean(h), self.spread(h)

    def sample(self, mu, logvar):
        return mu + torch.randn_like(mu) * torch.exp(logvar / 2)

    def decode(self, z):
        return torch.sigmoid(self.pixels(torch.relu(self.outer(z))))

    def forward(self, x):
        mu, logvar = self.encode(x.view(-1, 784))
        return self.decode(self.sample(mu, logvar)), mu, logvar


model = Vae().to(device)
optimizer = optim.Adam(model.parameters(), lr=1e-3)


# Sums over all pixels and all images of the batch
def loss_function(recon, x, mu, logvar):
    bce = F.binary_cross_entropy(recon, x.view(-1, 784), reduction='sum')
    kld = 0.5 * torch.sum(mu ** 2 + logvar.exp() - logvar - 1)
    return bce + kld


def train(epoch):
    model.train()
    train_loss = 0
    for batch_idx, (data, _) in enumerate(train_loader):
        data = data.to(device)
        optimizer.zero_grad()
        recon, mu, logvar = model(data)
        loss = loss_function(recon, data, mu, logvar)
        loss.backward()
        train_loss += loss.item()
        optimizer.step()
        if batch_idx % args.log_interval == 0:
            print('epoch {}: {:5d}/{} images, loss per image {:.3f}'.format(
                epoch, batch_idx * len(data), len(train_loader.dataset),
                loss.item() / len(data)))

    print('== epoch {}: {:.4f} on average'.format(
          epoch, train_loss / len(train_loader.dataset)))


def test(epoch):
    model.eval()
    test_loss = 0
    with torch.no_grad():
        for i, (data, _) in enumerate(test_loader):
            data = data.to(device)
            recon, mu, logvar = model(data)
            test_loss += loss_function(recon, data, mu, logvar).item()
            if i == 0:
                n = min(data.size(0), 8)
                pairs = torch.cat([data[:n], recon.view(args.batch_size, 1, 28, 28)[:n]])
                save_image(pairs.cpu(), 'pictures/pairs_' + str(epoch) + '.png', nrow=n)

    test_loss /= len(test_loader.dataset)
    print('== held out: {:.4f}'.format(test_loss))


if __name__ == "__main__":
    for epoch in range(1, args.epochs + 1):
        train(epoch)
        test(epoch)
        with torch.no_grad():
            z = torch.randn(36, 12).to(device)
            drawn = model.decode(z).cpu()
            save_image(drawn.view(36, 1, 28, 28),
                       'pictures/drawn_' + str(epoch) + '.png')
