"""One epoch of training, and one of evaluation."""

import torch
from meters import AverageMeter, reduced
from torch.nn.functional import cross_entropy


def train_one_epoch(model, loader, optimizer):
    model.train()
    for image, mask in loader:
        loss = cross_entropy(model(image.cuda())["out"], mask.cuda(), ignore_index=255)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


@torch.inference_mode()
def evaluate(model, loader):
    model.eval()
    losses = AverageMeter()
    for image, mask in loader:
        loss = cross_entropy(model(image.cuda())["out"], mask.cuda(), ignore_index=255)
        losses.update(loss.item(), image.size(0))
    return reduced(losses)
