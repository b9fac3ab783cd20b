# -*- coding: utf-8 -*-
"""
Spyder Editor

How long will a candle burn?
"""
import torch
import torch.nn as nn
from torch.utils.data import Dataset, DataLoader

device = torch.device('cuda' if torch.cuda.is_available() else 'cpu')
torch.manual_seed(123)


#%% data
class CandleData(Dataset):
    def __init__(self, n, seed):
        g = torch.Generator()
        g.manual_seed(seed)
        self.size = torch.rand(n, 2, generator=g) + 0.5     # height, width
        self.wind = torch.rand(n, 1, generator=g)
        self.hours = self.size[:, :1] * self.size[:, 1:] ** 2 * (2 - self.wind)

    def __len__(self):
        return self.hours.shape[0]

    def __getitem__(self, i):
        return torch.cat([self.size[i], self.wind[i]]), self.hours[i]


train_loader = DataLoader(CandleData(512, 0),
                          batch_size=32,
                          shuffle=True)
test_loader = DataLoader(CandleData(128, 1),
                         batch_size=32,
                         shuffle=False)


#%% model
net = nn.Sequential(
    nn.Linear(3, 32),
    nn.ReLU(),
    nn.Linear(32, 1),
)
net.to(device)
loss_func = nn.L1Loss(reduction='sum')   # summed, so the rate is small
optimizer = torch.optim.SGD(net.parameters(), lr=0.001)


#%% training
for epoch in range(10):
    net.train()
    epoch_loss = 0
    for step, (b_x, b_y) in enumerate(train_loader):
        b_x = b_x.to(device)
        b_y = b_y.to(device)
        loss = loss_func(net(b_x), b_y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        epoch_loss += loss.item()

    net.eval()
    test_loss = 0
    with torch.no_grad():
        for b_x, b_y in test_loader:
            test_loss += loss_func(net(b_x.to(device)), b_y.to(device)).item()
    print('Epoch:', epoch,
          '| off by %.4f hours in training' % (epoch_loss / len(train_loader.dataset)),
          '| %.4f in the test' % (test_loss / len(test_loader.dataset)))

torch.save(net, 'candle.pkl')
