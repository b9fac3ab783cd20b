import argparse
import random

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.optim.lr_scheduler import StepLR
from torch.utils.data import DataLoader, Dataset
from torchvision import datasets


class SameOrNot(Dataset):
    """Pairs of digits; half of them show the same digit. Each draw is a new pair."""

    def __init__(self, root, train, download=False):
        self.base = datasets.MNIST(root, train=train, download=download)
        self.images = self.base.data.unsqueeze(1).float() / 255
        self.by_digit = {}
        for i, t in enumerate(self.base.targets.tolist()):
            self.by_digit.setdefault(t, []).append(i)

    def __len__(self):
        return len(self.base)

    def __getitem__(self, index):
        digit = int(self.base.targets[index])
        if random.random() < 0.5:
            other, same = random.choice(self.by_digit[digit]), 1.0
        else:
            wrong = random.choice([d for d in self.by_digit if d != digit])
            other, same = random.choice(self.by_digit[wrong]), 0.0
        return self.images[index], self.images[other], torch.tensor(same)


class Twin(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 8, 5, stride=2), nn.ReLU(),
            nn.Conv2d(8, 16, 5, stride=2), nn.ReLU(),
            nn.Flatten(),
        )
        self.judge = nn.Sequential(nn.Linear(2 * 256, 64), nn.ReLU(), nn.Linear(64, 1))

    def forward_once(self, x):
        return self.features(x)

    def forward(self, a, b):
        a = self.forward_once(a)
        b = self.forward_once(b)
        return torch.sigmoid(self.judge(torch.cat([(a - b).abs(), a * b], 1))).squeeze(1)


def train(model, device, loader, optimizer, epoch, log_interval):
    model.train()
    criterion = nn.BCELoss()
    for batch_idx, (left, right, same) in enumerate(loader):
        left, right, same = left.to(device), right.to(device), same.to(device)
        optimizer.zero_grad()
        loss = criterion(model(left, right), same)
        loss.backward()
        optimizer.step()
        if batch_idx % log_interval == 0:
            print(f'[{epoch}] {batch_idx * len(left)}/{len(loader.dataset)}  {loss.item():.4f}')


def test(model, device, loader):
    model.eval()
    loss, right_guesses = 0, 0
    with torch.no_grad():
        for left, right, same in loader:
            left, right, same = left.to(device), right.to(device), same.to(device)
            p = model(left, right)
            loss += F.binary_cross_entropy(p, same, reduction='sum').item()
            right_guesses += torch.where(p > 0.5, 1., 0.).eq(same).sum().item()
    n = len(loader.dataset)
    print(f'    pairs judged rightly: {right_guesses}/{n} = {right_guesses / n:.3f}, loss {loss / n:.4f}')


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('--batch-size', type=int, default=80)
    parser.add_argument('--test-batch-size', type=int, default=400)
    parser.add_argument('--epochs', type=int, default=3)
    parser.add_argument('--lr', type=float, default=0.5)
    parser.add_argument('--gamma', type=float, default=0.8)
    parser.add_argument('--seed', type=int, default=2)
    parser.add_argument('--log-interval', type=int, default=10)
    args = parser.parse_args()

    torch.manual_seed(args.seed)
    random.seed(args.seed)
    device = torch.device('cuda') if torch.cuda.is_available() else torch.device('cpu')

    train_loader = DataLoader(SameOrNot('data', train=True, download=True),
                              batch_size=args.batch_size, shuffle=True)
    test_loader = DataLoader(SameOrNot('data', train=False), batch_size=args.test_batch_size)

    model = Twin().to(device)
    optimizer = torch.optim.Adadelta(model.parameters(), lr=args.lr)
    scheduler = StepLR(optimizer, step_size=1, gamma=args.gamma)
    for epoch in range(1, args.epochs + 1):
        train(model, device, train_loader, optimizer, epoch, args.log_interval)
        test(model, device, test_loader)
        scheduler.step()

    torch.save(model.state_dict(), 'twin.pt')


if __name__ == '__main__':
    main()
