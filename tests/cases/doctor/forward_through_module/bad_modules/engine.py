"""One epoch of training, one of validation."""

import torch
import torch.nn.functional as F


def batch_loss(model, batch):
    inputs, labels = (part.cuda(non_blocking=True) for part in batch)
    return F.cross_entropy(model.module.forward(inputs), labels)  # LS10


def train_one_epoch(model, loader, optimizer):
    model.train()
    for batch in loader:
        loss = batch_loss(model, batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


@torch.no_grad()
def validate(model, loader):
    model.eval()
    right = total = 0
    for inputs, labels in loader:
        right += (model.module(inputs.cuda()).argmax(1).cpu() == labels).sum().item()
        total += len(labels)
    return right / total
