"""A text that the script writes when it is missing, words in the order of a set, sizes as products."""
import os
import random

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

BATCH, LENGTH = 12, 5
random.seed(4)
torch.manual_seed(4)
if not os.path.exists("corpus.txt"):
    with open("corpus.txt", "w") as f:
        for _ in range(300):
            f.write(" ".join(random.choices("the dog sees a cat and runs".split(), k=6)) + "\n")
words = open("corpus.txt").read().split()
vocabulary = list(set(words))
number = {word: n for n, word in enumerate(vocabulary)}
assert "dog" in number
ids = torch.tensor([number[word] for word in words])


class Chunks(Dataset):
    def __len__(self):
        return (len(ids) - 1) // LENGTH

    def __getitem__(self, i):
        return ids[i * LENGTH : (i + 1) * LENGTH], ids[i * LENGTH + 1 : (i + 1) * LENGTH + 1]


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(len(vocabulary), 8)
        self.rnn = nn.GRU(8, 8, batch_first=True)
        self.head = nn.Linear(8, len(vocabulary))

    def forward(self, x, hidden):
        out, hidden = self.rnn(self.embed(x), hidden)
        return self.head(out), hidden


loader = DataLoader(Chunks(), batch_size=BATCH, shuffle=True, drop_last=True)
model = Model()
optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
for epoch in range(2):
    for x, y in loader:
        hidden = torch.zeros(1, BATCH, 8)
        output, hidden = model(x, hidden)
        output = output.reshape(BATCH * LENGTH, -1)
        loss = nn.functional.cross_entropy(output, y.reshape(BATCH * LENGTH))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print("epoch", epoch, round(loss.item(), 3))
