# refused: batch_loss
"""Learning to rank: every item of a batch against every other."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset


def ranknet(scores, relevance):
    difference = scores[:, None] - scores[None, :]
    wanted = (relevance[:, None] > relevance[None, :]).float()
    return F.binary_cross_entropy_with_logits(difference, wanted)


def main():
    data = TensorDataset(torch.randn(10000, 136), torch.randint(0, 5, (10000,)))
    loader = DataLoader(data, batch_size=256, shuffle=True)
    model = nn.Sequential(nn.Linear(136, 64), nn.ReLU(), nn.Linear(64, 1))
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.01)
    for _ in range(20):
        total = 0.0
        for features, relevance in loader:
            loss = ranknet(model(features).squeeze(1), relevance)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        print(total / len(loader))


main()
