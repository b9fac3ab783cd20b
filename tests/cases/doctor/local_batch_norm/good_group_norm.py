"""Small batches without batch norm in the trained model; the batch norm is in a frozen one."""

import os

import torch
import torch.distributed as dist
import torchvision
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


class Student(nn.Module):
    """Group norm in place of nn.BatchNorm2d."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 32, 3, 2), nn.GroupNorm(8, 32), nn.ReLU())
        self.head = nn.Linear(32, 1000)

    def forward(self, x):
        return self.head(self.body(x).mean((2, 3)))


def groups(channels):
    return nn.GroupNorm(32, channels)


def main():
    dist.init_process_group("nccl")
    gpu = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(gpu)
    teacher = torchvision.models.resnet50(weights="DEFAULT").cuda().eval()
    student = DDP(Student().cuda(), device_ids=[gpu])
    second = DDP(torchvision.models.resnet18(norm_layer=groups).cuda(), device_ids=[gpu])
    data = TensorDataset(torch.randn(512, 3, 224, 224))
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=8, sampler=sampler, num_workers=4)
    parameters = [*student.parameters(), *second.parameters()]
    optimizer = torch.optim.SGD(parameters, lr=0.01 * dist.get_world_size())
    for epoch in range(5):
        sampler.set_epoch(epoch)
        for (x,) in loader:
            x = x.cuda()
            with torch.no_grad():
                target = teacher(x).softmax(1)
            loss = nn.functional.cross_entropy(student(x), target)
            loss = loss + nn.functional.cross_entropy(second(x), target)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    if dist.get_rank() == 0:
        torch.save(student.module.state_dict(), "student.pt")


if __name__ == "__main__":
    main()
