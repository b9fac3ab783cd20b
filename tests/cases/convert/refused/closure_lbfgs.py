# refused: closure
"""A sine wave, with L-BFGS."""

import torch
import torch.nn as nn
import torch.optim as optim


class Sequence(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTMCell(1, 51)
        self.linear = nn.Linear(51, 1)

    def forward(self, x):
        h = torch.zeros(x.size(0), 51, dtype=torch.double)
        c = torch.zeros(x.size(0), 51, dtype=torch.double)
        outputs = []
        for part in x.split(1, dim=1):
            h, c = self.lstm(part, (h, c))
            outputs.append(self.linear(h))
        return torch.cat(outputs, dim=1)


if __name__ == "__main__":
    data = torch.load("waves.pt")
    source, target = data[3:, :-1], data[3:, 1:]
    seq = Sequence().double()
    criterion = nn.MSELoss()
    optimizer = optim.LBFGS(seq.parameters(), lr=0.8)
    for i in range(15):

        def closure():
            optimizer.zero_grad()
            loss = criterion(seq(source), target)
            loss.backward()
            return loss

        optimizer.step(closure)
