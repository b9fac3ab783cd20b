"""Fine-tuning on GPUs from a checkpoint, with batch norm over all ranks."""

import argparse
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=8)
parser.add_argument("--epochs", type=int, default=2)
args = parser.parse_args()

dist.init_process_group("nccl")
rank = dist.get_rank()
device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
torch.cuda.set_device(device)

generator = torch.Generator().manual_seed(1)
images = torch.randn(96, 3, 8, 8, generator=generator)
labels = torch.randint(4, (96,), generator=generator)
data = TensorDataset(images, labels)
sampler = DistributedSampler(data)
loader = DataLoader(data, args.batch_size, sampler=sampler, num_workers=1, pin_memory=True)

net = nn.Sequential(
    nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 4)
)
if rank == 0:
    torch.save(net.state_dict(), "pretrained.pt")
dist.barrier()
net.load_state_dict(torch.load("pretrained.pt", map_location="cpu"))  # not LS26
net = nn.SyncBatchNorm.convert_sync_batchnorm(net)
model = DDP(net.to(device), device_ids=[device.index])  # not LS28
optimizer = torch.optim.SGD(model.parameters(), lr=0.01 * dist.get_world_size())
scaler = torch.amp.GradScaler("cuda")

for epoch in range(args.epochs):
    sampler.set_epoch(epoch)
    for x, y in loader:
        x, y = x.to(device, non_blocking=True), y.to(device, non_blocking=True)
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", dtype=torch.float16):
            loss = nn.functional.cross_entropy(model(x), y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
if rank == 0:
    torch.save(model.module.state_dict(), "tuned.pt")
dist.destroy_process_group()
