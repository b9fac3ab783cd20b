# uneven: 26 batches, 4 per step: the two left over at the end of an epoch make a step of their own
import argparse
import gc
import os
from contextlib import nullcontext

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.amp import GradScaler, autocast
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import BatchSampler, DataLoader, DistributedSampler, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--batch_size", default=16, type=int, help="samples per forward pass")
parser.add_argument("--accum_steps", default=4, type=int, help="forward passes per step")
parser.add_argument("--epochs", default=5, type=int)
parser.add_argument("--lr", default=0.05, type=float)
parser.add_argument("--max_norm", default=1.0, type=float)
args = parser.parse_args()

# torchrun starts one process per GPU; without it this is the only one
distributed = "RANK" in os.environ
rank, world_size = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
if distributed:
    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
if args.batch_size % world_size:
    raise SystemExit("a batch of %d cannot be cut into %d equal parts" % (args.batch_size, world_size))

torch.manual_seed(99)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
use_amp = device.type == "cuda"


def make_data(n, seed):
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 20, generator=g)
    y = (x[:, :5].prod(dim=1) + x[:, 5] > 0).long()
    return TensorDataset(x, y)


train_set, val_set = make_data(416, 0), make_data(128, 1)
sampler = DistributedSampler(train_set, seed=99) if distributed else None
train_loader = DataLoader(train_set, batch_size=args.batch_size // world_size, shuffle=not distributed, sampler=sampler)
# Validation batches stay whole and are dealt to the ranks: the loss below is a mean of their means
val_batches = list(BatchSampler(range(len(val_set)), args.batch_size, drop_last=False))
val_loader = DataLoader(val_set, batch_sampler=val_batches[rank::world_size])

model = nn.Sequential(nn.Linear(20, 64), nn.GELU(), nn.LayerNorm(64), nn.Linear(64, 2)).to(device)
ddp = DistributedDataParallel(model) if distributed else model
optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9, nesterov=True)
criterion = nn.CrossEntropyLoss()
scaler = GradScaler(enabled=use_amp)


def over_ranks(*values):
    """The sum of each value over all ranks; all of them must call this."""
    sums = torch.tensor(values, dtype=torch.float64, device=device)
    if distributed:
        dist.all_reduce(sums)
    return sums.tolist()


steps = 0
for epoch in range(args.epochs):
    model.train()
    if distributed:
        sampler.set_epoch(epoch)
    running = 0.0
    optimizer.zero_grad()
    for i, (x, y) in enumerate(train_loader):
        x, y = x.to(device), y.to(device)
        stepping = (i + 1) % args.accum_steps == 0 or i + 1 == len(train_loader)
        # Gradients are exchanged once per step
        with ddp.no_sync() if distributed and not stepping else nullcontext():
            with autocast(device_type=device.type, enabled=use_amp):
                loss = criterion(ddp(x), y) / args.accum_steps
            scaler.scale(loss).backward()
        running += loss.item() * args.accum_steps

        if stepping:
            scaler.unscale_(optimizer)
            norm = nn.utils.clip_grad_norm_(model.parameters(), args.max_norm)
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
            steps += 1

    model.eval()
    val_loss, right = 0.0, 0
    with torch.no_grad():
        for x, y in val_loader:
            x, y = x.to(device), y.to(device)
            out = model(x)
            val_loss += criterion(out, y).item()
            right += (out.argmax(1) == y).sum().item()
    running, val_loss, right = over_ranks(running / world_size, val_loss, right)
    if rank == 0:
        print("epoch %d, %3d steps: train %.4f, val %.4f, right %.3f, last norm %.3f" % (
            epoch, steps, running / len(train_loader), val_loss / len(val_batches),
            right / len(val_loader.dataset), norm))

if rank == 0:
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(),
                "scaler": scaler.state_dict()}, "accumulated.pt")
if distributed:
    del ddp  # a wrapper that is still alive may abort the process when the group ends
    gc.collect()
    dist.destroy_process_group()
