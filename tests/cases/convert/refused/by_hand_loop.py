# refused: by_hand
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

lr = 20.0
data = TensorDataset(torch.randn(4096, 35), torch.randint(0, 4, (4096,)))
loader = DataLoader(data, batch_size=64, shuffle=True)
model = nn.Sequential(nn.Linear(35, 64), nn.Tanh(), nn.Linear(64, 4))

for epoch in range(40):
    for x, y in loader:
        model.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.25)
        for p in model.parameters():
            p.data.add_(p.grad, alpha=-lr)
    lr /= 1.1
