"""A frozen teacher, a copy by moving average, and branches that some steps leave out."""
import copy

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(2)


class Student(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(6, 12)
        self.task_a, self.task_b = nn.Linear(12, 3), nn.Linear(12, 1)

    def forward(self, x, task):
        h = torch.relu(self.body(x))
        return self.task_a(h) if task == "a" else self.task_b(h)


x = torch.randn(96, 6)
loader = DataLoader(TensorDataset(x, torch.randint(0, 3, (96,)), x.sum(1, keepdim=True)), batch_size=16)
teacher = nn.Linear(6, 3)
for p in teacher.parameters():
    p.requires_grad = False
student = Student()
slow = copy.deepcopy(student).eval()
optimizer = torch.optim.SGD([p for p in student.parameters() if p.requires_grad], lr=0.05)
for epoch in range(2):
    for i, (inputs, labels, values) in enumerate(loader):
        if i % 2 == 0:
            logits = student(inputs, "a")
            soft = F.kl_div(F.log_softmax(logits, 1), F.softmax(teacher(inputs), 1), reduction="batchmean")
            loss = F.cross_entropy(logits, labels) + 0.5 * soft
        else:
            loss = F.mse_loss(student(inputs, "b"), values)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            for s, p in zip(slow.parameters(), student.parameters()):
                s.lerp_(p, 0.1)
    print(epoch, loss.item())
