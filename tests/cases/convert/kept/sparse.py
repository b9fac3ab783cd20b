import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset


class SkipGram(nn.Module):
    def __init__(self, words):
        super().__init__()
        self.u = nn.Embedding(words, 100, sparse=True)
        self.v = nn.Embedding(words, 100, sparse=True)

    def forward(self, center, context, negatives):
        u, v, n = self.u(center), self.v(context), self.v(negatives)
        good = F.logsigmoid((u * v).sum(1))
        bad = F.logsigmoid(-torch.bmm(n, u.unsqueeze(2)).squeeze()).sum(1)
        return -(good + bad).mean()


class Pairs(Dataset):
    def __init__(self, pairs):
        self.pairs = pairs

    def __len__(self):
        return len(self.pairs)

    def __getitem__(self, i):
        return *self.pairs[i], torch.randint(0, 30000, (5,))


def main():
    model = SkipGram(30000)
    optimizer = torch.optim.SparseAdam(list(model.parameters()), lr=0.001)
    loader = DataLoader(Pairs(torch.load("pairs.pt")), batch_size=512, shuffle=True)
    for epoch in range(5):
        for center, context, negatives in loader:
            optimizer.zero_grad()
            loss = model(center, context, negatives)
            loss.backward()
            optimizer.step()


main()
