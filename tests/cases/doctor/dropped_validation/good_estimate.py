"""A small language model; the validation loss is an estimate from some batches."""

import os
from itertools import islice

import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F
from model import GPT
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler

BLOCK, BATCH, STEPS, ACCUMULATE, EVAL_BATCHES = 512, 8, 20000, 4, 50


class Blocks(Dataset):
    def __init__(self, path):
        self.tokens = np.memmap(path, dtype=np.uint16, mode="r")

    def __len__(self):
        return (len(self.tokens) - 1) // BLOCK

    def __getitem__(self, i):
        piece = torch.from_numpy(self.tokens[i * BLOCK : (i + 1) * BLOCK + 1].astype(np.int64))
        return piece[:-1], piece[1:]


def forever(loader, sampler):
    epoch = 0
    while True:
        sampler.set_epoch(epoch)
        yield from loader
        epoch += 1


@torch.no_grad()
def estimate(model, loader, device):
    losses = []
    for x, y in islice(loader, EVAL_BATCHES):
        logits = model(x.to(device))
        losses.append(F.cross_entropy(logits.flatten(0, 1), y.to(device).flatten()))
    loss = torch.stack(losses).mean()
    dist.all_reduce(loss, op=dist.ReduceOp.AVG)
    return loss.item()


dist.init_process_group("nccl")
device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
train_data, val_data = Blocks("train.bin"), Blocks("val.bin")
sampler = DistributedSampler(train_data)
train_loader = DataLoader(train_data, BATCH, sampler=sampler, num_workers=2, drop_last=True)
val_sampler = DistributedSampler(val_data, shuffle=True)
val_loader = DataLoader(val_data, BATCH, sampler=val_sampler, num_workers=2, drop_last=True)
model = DDP(GPT().to(device), device_ids=[device.index])
# The rate belongs to the batch of all ranks: BATCH * ACCUMULATE * world size.
optimizer = torch.optim.AdamW(model.parameters(), lr=6e-4, betas=(0.9, 0.95))
batches = forever(train_loader, sampler)
for step in range(STEPS):
    for micro in range(ACCUMULATE):
        x, y = next(batches)
        model.require_backward_grad_sync = micro == ACCUMULATE - 1
        logits = model(x.to(device))
        loss = F.cross_entropy(logits.flatten(0, 1), y.to(device).flatten()) / ACCUMULATE
        loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    if step % 500 == 0:
        val_loss = estimate(model, val_loader, device)
        if dist.get_rank() == 0:
            print(f"step {step}: val loss {val_loss:.3f}")
