"""Means over the tokens that are no padding, and over the cells that hold an object."""
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
PAD = 0
words = torch.randint(1, 9, (64, 8))
lengths = torch.randint(1, 9, (64,))
words[torch.arange(8)[None] >= lengths[:, None]] = PAD
boxes = torch.rand(64, 8)
holds = torch.rand(64, 8) < 0.2


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(9, 12, padding_idx=PAD)
        self.word, self.box = nn.Linear(12, 9), nn.Linear(12, 1)

    def forward(self, x):
        h = torch.tanh(self.embed(x))
        return self.word(h), self.box(h).squeeze(-1)


loader = DataLoader(TensorDataset(words, boxes, holds), batch_size=8)
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
for epoch in range(2):
    for x, box, object_here in loader:
        scores, guess = model(x)
        mask = (x != PAD).float()
        each = F.cross_entropy(scores.transpose(1, 2), x, reduction="none")
        word_loss = (each * mask).sum() / mask.sum()
        box_loss = F.mse_loss(guess[object_here], box[object_here])
        loss = word_loss + box_loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print("epoch", epoch)
