import random
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Noisy(Dataset):
    def __init__(self):
        self.x = torch.tensor(np.loadtxt("numbers/series.txt"), dtype=torch.float32).view(50, 8)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        x = self.x[i] + 0.1 * torch.randn(8)
        if random.random() < 0.5:
            x = x.flip(0)
        return x.unsqueeze(1) * np.random.uniform(0.9, 1.1), x.sum()


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn, self.drop = nn.GRU(1, 12), nn.Dropout(0.2)
        self.out = nn.Linear(12, 1)

    def forward(self, x):
        states, _ = self.rnn(x.transpose(0, 1))
        return self.out(self.drop(states)).mean(0).squeeze(1)


def main():
    loader = DataLoader(Noisy(), batch_size=12, shuffle=True, num_workers=1)
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(4):
        for x, y in loader:
            loss = nn.functional.mse_loss(model(x.float()), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        Path("numbers/done.txt").write_text(str(epoch))


if __name__ == "__main__":
    main()
