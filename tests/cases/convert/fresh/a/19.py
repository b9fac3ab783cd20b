"""Mean teacher: 60 labelled and 1400 unlabelled images of blurred digits-like patterns."""
import argparse
import copy
import itertools
import math
import random
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset, Subset

SEGMENTS = {0: "abcdef", 1: "bc", 2: "abged", 3: "abgcd", 4: "fgbc", 5: "afgcd", 6: "afgecd", 7: "abc", 8: "abcdefg", 9: "abcdfg"}
BOX = {"a": (1, 2, 2, 8), "b": (2, 7, 7, 8), "c": (7, 12, 7, 8), "d": (12, 13, 2, 8), "e": (7, 12, 2, 3), "f": (2, 7, 2, 3), "g": (6, 8, 2, 8)}


def draw(digit, rs):
    im = np.zeros((16, 12), np.float32)
    for s in SEGMENTS[digit]:
        y0, y1, x0, x1 = BOX[s]
        im[y0:y1, x0:x1] = rs.uniform(0.5, 1.0)
    im = np.roll(im, (rs.randint(0, 3), rs.randint(-1, 3)), (0, 1))
    return im + rs.normal(0, 0.25, im.shape).astype(np.float32)


class Digits(Dataset):
    def __init__(self, n, seed):
        rs = np.random.RandomState(seed)
        self.y = rs.randint(0, 10, n)
        self.x = torch.from_numpy(np.stack([draw(d, rs) for d in self.y])).float()[:, None]

    def __len__(self):
        return len(self.y)

    def __getitem__(self, i):
        return self.x[i], int(self.y[i])


class TwoViews(Dataset):
    def __init__(self, base, shift=1, noise=0.15):
        self.base, self.shift, self.noise = base, shift, noise

    def __len__(self):
        return len(self.base)

    def view(self, x):
        x = torch.roll(x, (random.randint(-self.shift, self.shift), random.randint(-self.shift, self.shift)), (1, 2))
        return x + self.noise * torch.randn_like(x)

    def __getitem__(self, i):
        x, y = self.base[i]
        return self.view(x), self.view(x), y


def build():
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.LeakyReLU(0.1), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1), nn.LeakyReLU(0.1), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(32 * 4 * 3, 64), nn.LeakyReLU(0.1), nn.Linear(64, 10))


def rampup(step, length):
    if step >= length:
        return 1.0
    return math.exp(-5.0 * (1 - step / length) ** 2)


@torch.no_grad()
def update_teacher(student, teacher, alpha, step):
    alpha = min(1 - 1 / (step + 1), alpha)
    for t, s in zip(teacher.parameters(), student.parameters()):
        t.data.mul_(alpha).add_(s.data, alpha=1 - alpha)


@torch.no_grad()
def error_rate(net, loader, device):
    net.eval()
    wrong = sum((net(x.to(device)).argmax(1) != y.to(device)).sum().item() for x, y in loader)
    return wrong / len(loader.dataset)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=10)
    ap.add_argument("--labeled", type=int, default=60)
    ap.add_argument("--labeled-bs", type=int, default=16)
    ap.add_argument("--unlabeled-bs", type=int, default=64)
    ap.add_argument("--weight", type=float, default=4.0)
    ap.add_argument("--threshold", type=float, default=0.6)
    ap.add_argument("--alpha", type=float, default=0.95)
    ap.add_argument("--lr", type=float, default=0.05)
    ap.add_argument("--seed", type=int, default=12)
    a = ap.parse_args()
    torch.manual_seed(a.seed)
    random.seed(a.seed)
    np.random.seed(a.seed)
    dev = torch.device("cuda" if torch.cuda.is_available() else "cpu")

    full = Digits(1460, 1)
    lab, unlab = Subset(full, range(a.labeled)), Subset(full, range(a.labeled, len(full)))
    lab_loader = DataLoader(TwoViews(lab), batch_size=a.labeled_bs, shuffle=True, drop_last=True)
    unl_loader = DataLoader(TwoViews(unlab), batch_size=a.unlabeled_bs, shuffle=True, drop_last=True)
    test_loader = DataLoader(Digits(500, 2), batch_size=250)

    student = build().to(dev)
    teacher = copy.deepcopy(student)
    for p in teacher.parameters():
        p.detach_()
    opt = torch.optim.SGD(student.parameters(), lr=a.lr, momentum=0.9, nesterov=True, weight_decay=5e-4)
    total = a.epochs * len(unl_loader)
    step = 0
    for epoch in range(a.epochs):
        student.train()
        t0, logs = time.time(), {"sup": 0.0, "cons": 0.0, "used": 0.0}
        for (lx, _, ly), (u1, u2, _) in zip(itertools.cycle(lab_loader), unl_loader):
            for g in opt.param_groups:
                g["lr"] = a.lr * math.cos(7 * math.pi * step / (16 * total))
            lx, ly, u1, u2 = lx.to(dev), ly.to(dev), u1.to(dev), u2.to(dev)
            out = student(torch.cat([lx, u1]))
            lo, uo = out[:len(lx)], out[len(lx):]
            sup = F.cross_entropy(lo, ly)
            with torch.no_grad():
                pt = F.softmax(teacher(u2), 1)
                mask = (pt.max(1).values > a.threshold).float()
            cons = (((F.softmax(uo, 1) - pt) ** 2).sum(1) * mask).mean()
            w = a.weight * rampup(step, total // 2)
            loss = sup + w * cons
            opt.zero_grad()
            loss.backward()
            opt.step()
            step += 1
            update_teacher(student, teacher, a.alpha, step)
            logs["sup"] += sup.item()
            logs["cons"] += cons.item()
            logs["used"] += mask.mean().item()
        k = len(unl_loader)
        print(f"epoch {epoch} sup {logs['sup'] / k:.4f} cons {logs['cons'] / k:.4f} confident {logs['used'] / k:.2f} w {w:.2f} | "
              f"test error student {error_rate(student, test_loader, dev):.4f} teacher {error_rate(teacher, test_loader, dev):.4f} "
              f"({time.time() - t0:.1f}s)")
    torch.save({"student": student.state_dict(), "teacher": teacher.state_dict(), "args": vars(a)}, "mean_teacher.pt")


if __name__ == "__main__":
    main()
