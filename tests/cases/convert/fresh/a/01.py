#!/usr/bin/env python
"""Train a small residual network on procedurally generated texture images.

    python 01.py --epochs 3 --batch-size 64
    python 01.py --resume runs/textures/last.pt --epochs 6
"""
import argparse
import json
import math
import os
import random
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset


def parse_args():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--out", default="runs/textures")
    p.add_argument("--epochs", type=int, default=3)
    p.add_argument("--batch-size", "-b", type=int, default=64)
    p.add_argument("--lr", type=float, default=2e-3)
    p.add_argument("--weight-decay", type=float, default=5e-2)
    p.add_argument("--warmup-steps", type=int, default=10)
    p.add_argument("--label-smoothing", type=float, default=0.1)
    p.add_argument("--workers", "-j", type=int, default=0)
    p.add_argument("--train-size", type=int, default=1200)
    p.add_argument("--val-size", type=int, default=300)
    p.add_argument("--resume", default="", help="path to a checkpoint")
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--no-amp", action="store_true")
    p.add_argument("--print-freq", type=int, default=5)
    return p.parse_args()


class Textures(Dataset):
    """6 kinds of texture, each image drawn from its own seed so that it never changes."""

    classes = ["hstripes", "vstripes", "checker", "rings", "diag", "blobs"]

    def __init__(self, n, size=20, offset=0, augment=False):
        self.n, self.size, self.offset, self.augment = n, size, offset, augment
        lin = np.linspace(-1, 1, size, dtype=np.float32)
        self.yy, self.xx = np.meshgrid(lin, lin, indexing="ij")

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        rng = np.random.default_rng(self.offset + i)
        label = int(rng.integers(len(self.classes)))
        f = rng.uniform(6, 12)
        ph = rng.uniform(0, 2 * math.pi)
        x, y = self.xx, self.yy
        base = [
            np.sin(f * y + ph),
            np.sin(f * x + ph),
            np.sign(np.sin(f * x + ph) * np.sin(f * y + ph)),
            np.sin(f * np.sqrt(x ** 2 + y ** 2) + ph),
            np.sin(f * (x + y) / 1.4 + ph),
            np.exp(-((x - rng.uniform(-.5, .5)) ** 2 + (y - rng.uniform(-.5, .5)) ** 2) * 6) * 2 - 1,
        ][label]
        tint = rng.uniform(0.4, 1.0, size=(3, 1, 1)).astype(np.float32)
        img = base[None].astype(np.float32) * tint + rng.normal(0, 0.5, (3, self.size, self.size)).astype(np.float32)
        img = torch.from_numpy(img)
        if self.augment and random.random() < 0.5:
            img = img.flip(-1) if label != 4 else img
        return img, label


class Block(nn.Module):
    def __init__(self, cin, cout, stride=1):
        super().__init__()
        self.conv1 = nn.Conv2d(cin, cout, 3, stride, 1, bias=False)
        self.n1 = nn.GroupNorm(4, cout)
        self.conv2 = nn.Conv2d(cout, cout, 3, 1, 1, bias=False)
        self.n2 = nn.GroupNorm(4, cout)
        self.short = nn.Identity()
        if stride != 1 or cin != cout:
            self.short = nn.Conv2d(cin, cout, 1, stride, bias=False)

    def forward(self, x):
        h = F.relu(self.n1(self.conv1(x)))
        h = self.n2(self.conv2(h))
        return F.relu(h + self.short(x))


class TinyResNet(nn.Module):
    def __init__(self, num_classes, width=16):
        super().__init__()
        self.stem = nn.Conv2d(3, width, 3, 1, 1)
        self.layers = nn.Sequential(Block(width, width), Block(width, 2 * width, 2), Block(2 * width, 4 * width, 2))
        self.fc = nn.Linear(4 * width, num_classes)

    def forward(self, x):
        return self.fc(self.layers(self.stem(x)).mean((2, 3)))


class AverageMeter:
    def __init__(self):
        self.sum = self.count = 0.0

    def update(self, v, n=1):
        self.sum += v * n
        self.count += n

    @property
    def avg(self):
        return self.sum / max(self.count, 1)


def lr_at(step, total, args):
    if step < args.warmup_steps:
        return args.lr * (step + 1) / args.warmup_steps
    t = (step - args.warmup_steps) / max(1, total - args.warmup_steps)
    return 0.5 * args.lr * (1 + math.cos(math.pi * t))


@torch.no_grad()
def validate(model, loader, criterion, device):
    model.eval()
    losses, top1 = AverageMeter(), AverageMeter()
    per_class = torch.zeros(len(Textures.classes), 2)
    for x, y in loader:
        x, y = x.to(device, non_blocking=True), y.to(device, non_blocking=True)
        out = model(x)
        losses.update(criterion(out, y).item(), x.size(0))
        hit = out.argmax(1) == y
        top1.update(hit.float().mean().item(), x.size(0))
        for c in range(len(per_class)):
            m = y == c
            per_class[c, 0] += hit[m].sum().item()
            per_class[c, 1] += m.sum().item()
    return losses.avg, top1.avg, (per_class[:, 0] / per_class[:, 1].clamp(min=1)).tolist()


def main():
    args = parse_args()
    random.seed(args.seed)
    np.random.seed(args.seed)
    torch.manual_seed(args.seed)
    os.makedirs(args.out, exist_ok=True)

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    use_amp = device.type == "cuda" and not args.no_amp

    train_set = Textures(args.train_size, augment=True)
    val_set = Textures(args.val_size, offset=10_000_000)
    train_loader = DataLoader(train_set, batch_size=args.batch_size, shuffle=True, num_workers=args.workers,
                              pin_memory=device.type == "cuda", drop_last=True)
    val_loader = DataLoader(val_set, batch_size=100, shuffle=False, num_workers=args.workers)

    model = TinyResNet(len(Textures.classes)).to(device)
    decay = [p for p in model.parameters() if p.ndim > 1]
    no_decay = [p for p in model.parameters() if p.ndim <= 1]
    optimizer = torch.optim.AdamW([{"params": decay, "weight_decay": args.weight_decay},
                                   {"params": no_decay, "weight_decay": 0.0}], lr=args.lr)
    scaler = torch.amp.GradScaler(enabled=use_amp)
    criterion = nn.CrossEntropyLoss(label_smoothing=args.label_smoothing).to(device)

    start_epoch, best_acc, step = 0, 0.0, 0
    if args.resume:
        ckpt = torch.load(args.resume, map_location=device)
        model.load_state_dict(ckpt["model"])
        optimizer.load_state_dict(ckpt["optimizer"])
        scaler.load_state_dict(ckpt["scaler"])
        start_epoch, best_acc, step = ckpt["epoch"] + 1, ckpt["best_acc"], ckpt["step"]
        print(f"=> resumed from {args.resume} (epoch {ckpt['epoch']})")

    total = args.epochs * len(train_loader)
    history = []
    for epoch in range(start_epoch, args.epochs):
        model.train()
        losses, t0 = AverageMeter(), time.time()
        for i, (x, y) in enumerate(train_loader):
            lr = lr_at(step, total, args)
            for g in optimizer.param_groups:
                g["lr"] = lr
            x = x.to(device, non_blocking=True)
            y = y.to(device, non_blocking=True)
            with torch.autocast(device.type, enabled=use_amp):
                loss = criterion(model(x), y)
            optimizer.zero_grad(set_to_none=True)
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
            losses.update(loss.item(), x.size(0))
            step += 1
            if i % args.print_freq == 0:
                print(f"epoch {epoch} [{i:3d}/{len(train_loader)}] lr {lr:.2e} loss {losses.avg:.4f}")
        val_loss, acc, per_class = validate(model, val_loader, criterion, device)
        print(f"* epoch {epoch} train {losses.avg:.4f} val {val_loss:.4f} acc {100 * acc:.2f}% ({time.time() - t0:.1f}s)")
        history.append({"epoch": epoch, "train_loss": losses.avg, "val_loss": val_loss, "acc": acc, "per_class": per_class})
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "scaler": scaler.state_dict(),
                 "epoch": epoch, "best_acc": max(acc, best_acc), "step": step}
        torch.save(state, os.path.join(args.out, "last.pt"))
        if acc > best_acc:
            best_acc = acc
            torch.save(state, os.path.join(args.out, "best.pt"))
        with open(os.path.join(args.out, "history.json"), "w") as f:
            json.dump(history, f, indent=1)

    model.load_state_dict(torch.load(os.path.join(args.out, "best.pt"), map_location=device)["model"])
    _, acc, per_class = validate(model, val_loader, criterion, device)
    print(f"best model: acc {100 * acc:.2f}%", dict(zip(Textures.classes, [round(v, 3) for v in per_class])))


if __name__ == "__main__":
    main()
