"""A teacher that follows the student slowly; no negatives, so nothing crosses the batch."""

import copy

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


@torch.no_grad()
def follow(teacher, student, momentum):
    for slow, fast in zip(teacher.parameters(), student.parameters()):
        slow.data.mul_(momentum).add_(fast.data, alpha=1 - momentum)


def main():
    student = nn.Sequential(nn.Linear(128, 256), nn.BatchNorm1d(256), nn.ReLU(), nn.Linear(256, 64)).cuda()
    predictor = nn.Linear(64, 64).cuda()
    teacher = copy.deepcopy(student)
    for p in teacher.parameters():
        p.requires_grad = False
    optimizer = torch.optim.AdamW([*student.parameters(), *predictor.parameters()])
    loader = DataLoader(TensorDataset(torch.randn(8192, 128)), batch_size=256, shuffle=True)
    for epoch in range(10):
        for (x,) in loader:
            x = x.cuda()
            p = predictor(student(x + 0.1 * torch.randn_like(x)))
            with torch.no_grad():
                z = teacher(x)
            loss = 2 - 2 * F.cosine_similarity(p, z.detach(), dim=-1).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            follow(teacher, student, 0.99)


main()
