import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def main(args):
    data = TensorDataset(torch.randn(2048, 32), torch.randint(0, 2, (2048,)))
    loader = DataLoader(data, batch_size=16, shuffle=True)
    model = nn.Sequential(nn.Linear(32, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 2))
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    for epoch in range(args.epochs):
        optimizer.zero_grad()
        for i, (x, y) in enumerate(loader):
            loss = nn.functional.cross_entropy(model(x), y) / args.accumulate
            loss.backward()
            if (i + 1) % args.accumulate == 0:
                for p in model.parameters():
                    p.grad.clamp_(-1, 1)
                optimizer.step()
                optimizer.zero_grad()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--accumulate", type=int, default=4)
    main(parser.parse_args())
