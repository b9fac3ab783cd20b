import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader
from torchvision import datasets, models, transforms


def mixup(x, y, alpha=0.2):
    lam = np.random.beta(alpha, alpha)
    index = torch.randperm(x.size(0), device=x.device)
    return lam * x + (1 - lam) * x[index], y, y[index], lam


def accuracy(output, target, topk=(1,)):
    _, pred = output.topk(max(topk), 1)
    correct = pred.t().eq(target.view(1, -1).expand_as(pred.t()))
    return [correct[:k].reshape(-1).float().sum() for k in topk]


train_set = datasets.CIFAR10("data", transform=transforms.ToTensor())
train_loader = DataLoader(train_set, batch_size=128, shuffle=True, num_workers=4)
model = models.resnet18(num_classes=10).cuda()
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
for epoch in range(200):
    for x, y in train_loader:
        x, a, b, lam = mixup(x.cuda(), y.cuda())
        out = model(x)
        loss = lam * criterion(out, a) + (1 - lam) * criterion(out, b)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        hits = accuracy(out, a)
