# uneven
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

from meter import AverageMeter, ProgressMeter

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def make_set(n, seed):
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 20, generator=g)
    y = (x[:, :4] + 0.5 * torch.randn(n, 4, generator=g)).argmax(1)
    return TensorDataset(x, y)


def accuracy(output, target, topk=(1,)):
    maxk = max(topk)
    _, pred = output.topk(maxk, 1, True, True)
    correct = pred.t().eq(target.view(1, -1).expand_as(pred.t()))
    res = []
    for k in topk:
        correct_k = correct[:k].reshape(-1).float().sum(0, keepdim=True)
        res.append(correct_k.mul_(100.0 / target.size(0)))
    return res


def train(train_loader, model, optimizer, epoch):
    losses = AverageMeter("loss", ":.4f")
    steps = AverageMeter("loss by step", ":.4f")
    top1 = AverageMeter("top1", ":.2f")
    model.train()
    for images, target in train_loader:
        images, target = images.to(DEVICE), target.to(DEVICE)
        output = model(images)
        loss = F.cross_entropy(output, target)
        acc1, = accuracy(output, target)
        losses.update(loss.item(), images.size(0))
        steps.update(loss.item())
        top1.update(acc1[0].item(), images.size(0))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch}: loss {losses.avg:.4f} {steps.avg:.4f} top1 {top1.avg:.2f}")
    print(f"{losses.count} samples in {steps.count} steps")


def validate(val_loader, model):
    losses = AverageMeter("loss", ":.4f")
    top1 = AverageMeter("top1", ":.2f")
    top2 = AverageMeter("top2", ":.2f")
    progress = ProgressMeter(len(val_loader), [losses, top1, top2], prefix="test:")
    model.eval()
    with torch.no_grad():
        for images, target in val_loader:
            images, target = images.to(DEVICE), target.to(DEVICE)
            output = model(images)
            loss = F.cross_entropy(output, target)
            acc1, acc2 = accuracy(output, target, topk=(1, 2))
            losses.update(loss.item(), images.size(0))
            top1.update(acc1[0].item(), images.size(0))
            top2.update(acc2[0].item(), images.size(0))
    print(progress.display_summary())
    return top1.avg


def main():
    torch.manual_seed(1)
    train_loader = DataLoader(make_set(256, 0), batch_size=32, shuffle=True)
    val_loader = DataLoader(make_set(140, 1), batch_size=32, shuffle=False)
    model = nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, 4)).to(DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    best = 0
    for epoch in range(3):
        train(train_loader, model, optimizer, epoch)
        best = max(best, validate(val_loader, model))
    print(f"best top1 {best:.2f}")


if __name__ == "__main__":
    main()
