import argparse
import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler
from torchvision import datasets, transforms
from torchvision.models import resnet18

parser = argparse.ArgumentParser(description="CIFAR-10 on several cards: torchrun --nproc_per_node=4 bad_cifar_torchrun.py")
parser.add_argument("--root", default="./data")
parser.add_argument("--epochs", type=int, default=60)
parser.add_argument("--bs", type=int, default=128)
parser.add_argument("--lr", type=float, default=0.1)
args = parser.parse_args()

local_rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(local_rank)
dist.init_process_group(backend="nccl")
rank = dist.get_rank()

normalize = transforms.Normalize((0.491, 0.482, 0.447), (0.247, 0.243, 0.262))
augment = transforms.Compose([transforms.RandomCrop(32, padding=4), transforms.RandomHorizontalFlip(),
                              transforms.ToTensor(), normalize])
train_set = datasets.CIFAR10(args.root, train=True, transform=augment, download=True)  # LS34
sampler = DistributedSampler(train_set)
train_loader = DataLoader(train_set, batch_size=args.bs, sampler=sampler, num_workers=4, pin_memory=True)

model = resnet18(num_classes=10).cuda(local_rank)
model = DDP(model, device_ids=[local_rank])
optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9, weight_decay=5e-4)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=args.epochs)

for epoch in range(args.epochs):
    sampler.set_epoch(epoch)
    model.train()
    for images, labels in train_loader:
        images, labels = images.cuda(local_rank), labels.cuda(local_rank)
        optimizer.zero_grad()
        loss = F.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
    scheduler.step()
    if rank == 0:
        print(f"[{epoch:03d}] loss {loss.item():.3f}")
        torch.save(model.module.state_dict(), "cifar_resnet18.pt")

dist.destroy_process_group()
