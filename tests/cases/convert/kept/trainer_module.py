"""A trainer that is a module itself and holds the optimizers of its parts."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Translation(nn.Module):
    def __init__(self):
        super().__init__()
        self.gen, self.dis = nn.Linear(32, 32), nn.Linear(32, 1)
        self.gen_opt = torch.optim.Adam(self.gen.parameters(), lr=1e-4)
        self.dis_opt = torch.optim.Adam(self.dis.parameters(), lr=1e-4)

    def gen_update(self, a, b):
        self.gen_opt.zero_grad()
        fake = self.gen(a)
        loss = (fake - b).abs().mean() + ((self.dis(fake) - 1) ** 2).mean()
        loss.backward()
        self.gen_opt.step()

    def dis_update(self, a, b):
        self.dis_opt.zero_grad()
        loss = (self.dis(self.gen(a).detach()) ** 2).mean() + ((self.dis(b) - 1) ** 2).mean()
        loss.backward()
        self.dis_opt.step()


trainer = Translation().cuda()
loader = DataLoader(TensorDataset(torch.randn(512, 32), torch.randn(512, 32)), 8, shuffle=True)
for epoch in range(10):
    for a, b in loader:
        trainer.dis_update(a.cuda(), b.cuda())
        trainer.gen_update(a.cuda(), b.cuda())
