# refused: layer_local
import torch
import torch.nn as nn
from torch.optim import Adam
from torch.utils.data import DataLoader
from torchvision.datasets import MNIST
from torchvision.transforms import ToTensor


class Layer(nn.Linear):
    def __init__(self, inputs, outputs):
        super().__init__(inputs, outputs)
        self.opt = Adam(self.parameters(), lr=0.03)

    def forward(self, x):
        return torch.relu(super().forward(x / (x.norm(2, 1, keepdim=True) + 1e-4)))

    def learn(self, pos, neg):
        for _ in range(1000):
            good = self.forward(pos).pow(2).mean(1)
            bad = self.forward(neg).pow(2).mean(1)
            loss = torch.log(1 + torch.exp(torch.cat([2.0 - good, bad - 2.0]))).mean()
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()
        return self.forward(pos).detach(), self.forward(neg).detach()


class Net(nn.Module):
    def __init__(self, sizes):
        super().__init__()
        self.layers = [Layer(a, b).cuda() for a, b in zip(sizes, sizes[1:])]

    def learn(self, pos, neg):
        for layer in self.layers:
            pos, neg = layer.learn(pos, neg)


net = Net([784, 500, 500])
loader = DataLoader(MNIST("data", transform=ToTensor()), batch_size=5000, shuffle=True)
for x, y in loader:
    x = x.flatten(1).cuda()
    net.learn(x, x[torch.randperm(len(x))])
