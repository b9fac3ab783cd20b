import argparse
import os

import torch
import torch.nn as nn
import torch.nn.functional as F
import torchvision
from torchvision import transforms

ap = argparse.ArgumentParser()
ap.add_argument('--data', default='data')
ap.add_argument('--temperature', default=3.0, type=float)
ap.add_argument('--alpha', default=0.7, type=float, help='share of the loss that comes from the teacher')
ap.add_argument('--teacher', default='teacher.pth')
ap.add_argument('--epochs', default=2, type=int)
args = ap.parse_args()


def seed(n=0):
    torch.manual_seed(n)
    torch.cuda.manual_seed_all(n)


seed(40)
DEVICE = torch.device('cuda' if torch.cuda.is_available() else 'cpu')

tf = transforms.Compose([transforms.ToTensor(), transforms.Normalize((0.5, 0.5, 0.5), (0.25, 0.25, 0.25))])
train_set = torchvision.datasets.CIFAR10(args.data, train=True, download=True, transform=tf)
test_set = torchvision.datasets.CIFAR10(args.data, train=False, download=True, transform=tf)
train_loader = torch.utils.data.DataLoader(train_set, 80, shuffle=True)
test_loader = torch.utils.data.DataLoader(test_set, 200)


def convnet(width):
    return nn.Sequential(
        nn.Conv2d(3, width, 3, stride=2, padding=1), nn.ReLU(),
        nn.Conv2d(width, 2 * width, 3, stride=2, padding=1), nn.ReLU(),
        nn.Flatten(), nn.Linear(2 * width * 64, 10))


def accuracy(net):
    net.eval()
    n = 0
    with torch.no_grad():
        for x, y in test_loader:
            n += (net(x.to(DEVICE)).argmax(1) == y.to(DEVICE)).sum().item()
    return n / len(test_set)


teacher = convnet(16).to(DEVICE)
student = convnet(4).to(DEVICE)

if os.path.isfile(args.teacher):
    teacher.load_state_dict(torch.load(args.teacher))
    print(f'teacher read from {args.teacher}')
else:
    opt = torch.optim.Adam(teacher.parameters(), lr=1e-3)
    for epoch in range(args.epochs):
        teacher.train()
        for x, y in train_loader:
            x, y = x.to(DEVICE), y.to(DEVICE)
            opt.zero_grad()
            F.cross_entropy(teacher(x), y).backward()
            opt.step()
        print(f'teacher, epoch {epoch}: {accuracy(teacher):.4f}')
    torch.save(teacher.state_dict(), args.teacher)

for p in teacher.parameters():
    p.requires_grad = False
teacher.eval()

opt = torch.optim.Adam(student.parameters(), lr=2e-3)
T = args.temperature
for epoch in range(args.epochs):
    student.train()
    soft_sum = hard_sum = 0.
    for x, y in train_loader:
        x, y = x.to(DEVICE), y.to(DEVICE)
        with torch.no_grad():
            goal = F.softmax(teacher(x) / T, dim=1)
        logits = student(x)
        soft = F.kl_div(F.log_softmax(logits / T, dim=1), goal, reduction='batchmean') * T * T
        hard = F.cross_entropy(logits, y)
        loss = args.alpha * soft + (1 - args.alpha) * hard
        opt.zero_grad()
        loss.backward()
        opt.step()
        soft_sum += soft.item()
        hard_sum += hard.item()
    n = len(train_loader)
    print(f'student, epoch {epoch}: soft {soft_sum / n:.4f}, hard {hard_sum / n:.4f}, accuracy {accuracy(student):.4f}')

torch.save(student.state_dict(), 'student.pth')
