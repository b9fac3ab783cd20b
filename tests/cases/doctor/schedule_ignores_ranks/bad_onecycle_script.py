"""torchrun --nproc_per_node 8 bad_onecycle_script.py /imagenette"""
import argparse
import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.optim.lr_scheduler import OneCycleLR
from torch.utils.data import DataLoader, DistributedSampler
from torchvision import datasets, models
from torchvision import transforms as T

ap = argparse.ArgumentParser()
ap.add_argument("root")
ap.add_argument("--epochs", type=int, default=20)
ap.add_argument("--batch-size", type=int, default=64, help="per card")
ap.add_argument("--max-lr", type=float, default=0.4)
args = ap.parse_args()

local_rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(local_rank)
dist.init_process_group("nccl")

train_set = datasets.ImageFolder(args.root, T.Compose([T.RandomResizedCrop(176), T.ToTensor()]))
sampler = DistributedSampler(train_set)
loader = DataLoader(train_set, batch_size=args.batch_size, sampler=sampler, num_workers=6, drop_last=True)

model = models.resnet18(num_classes=len(train_set.classes)).cuda()
model = DDP(model, device_ids=[local_rank])
optimizer = torch.optim.SGD(model.parameters(), lr=args.max_lr / 25, momentum=0.9)
total_steps = len(train_set) // args.batch_size * args.epochs
scheduler = OneCycleLR(optimizer, max_lr=args.max_lr, total_steps=total_steps)  # LS36

for epoch in range(args.epochs):
    sampler.set_epoch(epoch)
    for x, y in loader:
        x, y = x.cuda(non_blocking=True), y.cuda(non_blocking=True)
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
    if dist.get_rank() == 0:
        print(f"{epoch:3d}  loss {loss.item():.3f}  lr {scheduler.get_last_lr()[0]:.5f}")

if dist.get_rank() == 0:
    torch.save(model.module.state_dict(), "onecycle.pt")
dist.destroy_process_group()
