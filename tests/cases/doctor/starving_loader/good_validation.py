"""Only the validation, once in a while and on rank 0, has no workers."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler
from torchvision import datasets, transforms

dist.init_process_group("nccl")
rank = dist.get_rank()
device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))

to_tensor = transforms.ToTensor()
train_set = datasets.FashionMNIST("data", train=True, transform=to_tensor)
test_set = datasets.FashionMNIST("data", train=False, transform=to_tensor)
sampler = DistributedSampler(train_set)
options = {"batch_size": 128, "pin_memory": True}
train_loader = DataLoader(train_set, sampler=sampler, num_workers=4, **options)
test_loader = DataLoader(test_set, batch_size=500)

model = nn.Sequential(nn.Flatten(), nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 10))
model = DDP(model.to(device), device_ids=[device.index])
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

for epoch in range(20):
    sampler.set_epoch(epoch)
    model.train()
    for images, labels in train_loader:
        loss = nn.functional.cross_entropy(model(images.to(device)), labels.to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    if rank == 0:
        model.eval()
        right = 0
        with torch.no_grad():
            for images, labels in test_loader:
                right += (model.module(images.to(device)).argmax(1).cpu() == labels).sum().item()
        print(epoch, right / len(test_set))
        torch.save(model.module.state_dict(), "fashion.pt")

dist.destroy_process_group()
