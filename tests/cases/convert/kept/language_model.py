"""An LSTM whose state is carried from part to part; the text is cut by hand."""

import argparse
import math

import torch
import torch.nn as nn

parser = argparse.ArgumentParser()
parser.add_argument("--bptt", type=int, default=35)
parser.add_argument("--epochs", type=int, default=40)
args = parser.parse_args()


def batchify(data, size):
    n = data.size(0) // size
    return data.narrow(0, 0, n * size).view(size, -1).t().contiguous()


def get_batch(source, i):
    length = min(args.bptt, len(source) - 1 - i)
    return source[i : i + length], source[i + 1 : i + 1 + length].view(-1)


class RNN(nn.Module):
    def __init__(self, tokens):
        super().__init__()
        self.embed = nn.Embedding(tokens, 200)
        self.rnn = nn.LSTM(200, 200, 2)
        self.out = nn.Linear(200, tokens)

    def forward(self, x, hidden):
        y, hidden = self.rnn(self.embed(x), hidden)
        return self.out(y).view(-1, self.out.out_features), hidden


def repackage(h):
    return tuple(v.detach() for v in h) if isinstance(h, tuple) else h.detach()


train_data = batchify(torch.load("corpus.pt"), 20)
model = RNN(33278)
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=20)


def train():
    hidden = (torch.zeros(2, 20, 200), torch.zeros(2, 20, 200))
    total = 0.0
    for batch, i in enumerate(range(0, train_data.size(0) - 1, args.bptt)):
        data, targets = get_batch(train_data, i)
        hidden = repackage(hidden)
        optimizer.zero_grad()
        output, hidden = model(data, hidden)
        loss = criterion(output, targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.25)
        optimizer.step()
        total += loss.item()
    return math.exp(total / (batch + 1))


for epoch in range(1, args.epochs + 1):
    print(epoch, train())
