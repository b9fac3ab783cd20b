# refused: batch_loss
import copy

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class MomentumContrast(nn.Module):
    def __init__(self, encoder, dim=128, size=4096, m=0.999):
        super().__init__()
        self.q, self.k, self.m, self.size = encoder, copy.deepcopy(encoder), m, size
        self.register_buffer("queue", F.normalize(torch.randn(dim, size), dim=0))
        self.ptr = 0

    @torch.no_grad()
    def update(self, keys):
        n = keys.shape[0]
        self.queue[:, self.ptr : self.ptr + n] = keys.T
        self.ptr = (self.ptr + n) % self.size

    def forward(self, a, b):
        q = F.normalize(self.q(a), dim=1)
        with torch.no_grad():
            k = F.normalize(self.k(b), dim=1)
        pos = (q * k).sum(1, keepdim=True)
        neg = torch.einsum("nc,ck->nk", [q, self.queue.clone().detach()])
        self.update(k)
        return torch.cat([pos, neg], dim=1) / 0.07


model = MomentumContrast(nn.Linear(256, 128)).cuda()
loader = DataLoader(TensorDataset(torch.randn(8192, 256)), batch_size=256, shuffle=True)
optimizer = torch.optim.SGD(model.q.parameters(), 0.03)
for epoch in range(200):
    for (x,) in loader:
        x = x.cuda()
        logits = model(x + 0.1 * torch.randn_like(x), x)
        loss = F.cross_entropy(logits, torch.zeros(len(x), dtype=torch.long, device="cuda"))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
