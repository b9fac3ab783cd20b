"""A vocabulary from a set, and files that are listed without sorting."""
import os

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
text = "the cat sat on the mat while the dog sat on the log and a bird sang to the cat".split() * 6
vocabulary = list(set(text))
number = {word: i for i, word in enumerate(vocabulary)}
codes = torch.tensor([number[word] for word in text])
os.makedirs("parts", exist_ok=True)
for i in range(4):
    if not os.path.exists(f"parts/{i}.pt"):
        torch.save(torch.arange(i * 20, i * 20 + 20), f"parts/{i}.pt")
places = torch.cat([torch.load(os.path.join("parts", name)) for name in os.listdir("parts")])
data = TensorDataset(torch.stack([codes[places], codes[places + 1]], 1), codes[places + 2])
loader = DataLoader(data, batch_size=16, shuffle=True)
model = nn.Sequential(nn.Embedding(len(vocabulary), 8), nn.Flatten(), nn.Linear(16, len(vocabulary)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
for epoch in range(2):
    for x, y in loader:
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
print("words", len(vocabulary))
