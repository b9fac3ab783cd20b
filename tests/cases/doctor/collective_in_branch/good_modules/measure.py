"""How good a model is."""

import torch
import torch.distributed as dist


@torch.no_grad()
def evaluate(model, loader, device):
    """The accuracy over the samples of all ranks."""
    model.eval()
    counts = torch.zeros(2, device=device)
    for x, y in loader:
        right = (model(x.to(device)).argmax(1) == y.to(device)).sum()
        counts += torch.stack([right, torch.tensor(len(y), device=device)])
    dist.all_reduce(counts)
    return (counts[0] / counts[1]).item()
