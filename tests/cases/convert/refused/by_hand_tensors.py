# refused: by_hand
"""Linear regression from scratch."""

import random

import torch


def batches(size, features, labels):
    order = list(range(len(features)))
    random.shuffle(order)
    for i in range(0, len(order), size):
        part = torch.tensor(order[i : i + size])
        yield features[part], labels[part]


def sgd(params, lr, size):
    with torch.no_grad():
        for param in params:
            param -= lr * param.grad / size
            param.grad.zero_()


features = torch.randn(1000, 2)
labels = features @ torch.tensor([2.0, -3.4]) + 4.2
w = torch.normal(0, 0.01, size=(2,), requires_grad=True)
b = torch.zeros(1, requires_grad=True)
for epoch in range(3):
    for x, y in batches(10, features, labels):
        loss = ((x @ w + b - y) ** 2 / 2).sum()
        loss.backward()
        sgd([w, b], 0.03, 10)
    print(epoch)
