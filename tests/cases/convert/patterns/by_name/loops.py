import torch
from torch.nn import functional as F


def cycle(loader):
    while True:
        yield from loader


def fit(model, optimizer, loader, iterations):
    batches = cycle(loader)
    for step in range(iterations):
        x, y = next(batches)
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 3 == 0:
            print(f"[{step}/{iterations}] {loss.item():.4f}")


@torch.no_grad()
def evaluate(model, loader):
    right = 0
    for x, y in loader:
        right += (model(x).argmax(1) == y).sum().item()
    return right / len(loader.dataset)
