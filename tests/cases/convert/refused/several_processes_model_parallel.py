# refused: several_processes
import torch
import torch.nn as nn
import torch.optim as optim
from torch.utils.data import DataLoader, TensorDataset


class Split(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(1000, 4000).to("cuda:0")
        self.second = nn.Linear(4000, 10).to("cuda:1")

    def forward(self, x):
        x = torch.relu(self.first(x.to("cuda:0")))
        return self.second(x.to("cuda:1"))


model = Split()
criterion = nn.CrossEntropyLoss()
optimizer = optim.SGD(model.parameters(), lr=0.001)
loader = DataLoader(TensorDataset(torch.randn(512, 1000), torch.zeros(512).long()), batch_size=32)
for epoch in range(3):
    for x, y in loader:
        optimizer.zero_grad()
        criterion(model(x), y.to("cuda:1")).backward()
        optimizer.step()
