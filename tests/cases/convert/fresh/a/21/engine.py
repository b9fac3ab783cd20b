import math
import sys

import torch


def iou(a, b):
    lo = torch.maximum(a[:, None, :2] - a[:, None, 2:] / 2, b[None, :, :2] - b[None, :, 2:] / 2)
    hi = torch.minimum(a[:, None, :2] + a[:, None, 2:] / 2, b[None, :, :2] + b[None, :, 2:] / 2)
    inter = (hi - lo).clamp(min=0).prod(2)
    return inter / (a[:, None, 2:].prod(2) + b[None, :, 2:].prod(2) - inter)


def train_one_epoch(model, optimizer, data_loader, device, epoch, print_freq):
    model.train()
    warm = None
    if epoch == 0:
        n = min(20, len(data_loader) - 1)
        warm = torch.optim.lr_scheduler.LinearLR(optimizer, start_factor=0.01, total_iters=n)
    sums = {}
    for step, (images, targets) in enumerate(data_loader):
        images = images.to(device)
        targets = [{k: v.to(device) for k, v in t.items()} for t in targets]
        loss_dict = model(images, targets)
        losses = sum(loss for loss in loss_dict.values())
        value = losses.item()
        if not math.isfinite(value):
            print("Loss is {}, stopping training".format(value), loss_dict)
            sys.exit(1)
        optimizer.zero_grad()
        losses.backward()
        optimizer.step()
        if warm is not None:
            warm.step()
        for k, v in loss_dict.items():
            sums[k] = sums.get(k, 0.0) + v.item()
        if step % print_freq == 0:
            print(f"Epoch [{epoch}] [{step}/{len(data_loader)}] lr {optimizer.param_groups[0]['lr']:.5f} "
                  + " ".join(f"{k} {v.item():.4f}" for k, v in loss_dict.items()))
    return {k: v / len(data_loader) for k, v in sums.items()}


@torch.inference_mode()
def evaluate(model, data_loader, device):
    """Precision and recall at IoU 0.5 with the right class."""
    model.eval()
    tp = n_det = n_gt = 0
    for images, targets in data_loader:
        for det, gt in zip(model(images.to(device)), targets):
            n_gt += len(gt["boxes"])
            n_det += len(det["boxes"])
            if len(det["boxes"]) == 0:
                continue
            m = iou(det["boxes"].cpu(), gt["boxes"])
            m = m * (det["labels"].cpu()[:, None] == gt["labels"][None])
            free = torch.ones(len(gt["boxes"]), dtype=torch.bool)
            for i in det["scores"].cpu().argsort(descending=True):
                row = m[i] * free
                j = row.argmax()
                if row[j] > 0.5:
                    tp += 1
                    free[j] = False
    return tp / max(n_det, 1), tp / max(n_gt, 1)
