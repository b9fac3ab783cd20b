"""Language model on ragged text: the mean is over the tokens of all ranks, not over the ranks."""
import os

import torch
import torch.distributed as dist
import torch.distributed.nn.functional as diff_dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, DistributedSampler

PAD = -100


def collate(rows):
    x = pad_sequence([r[:-1] for r in rows], batch_first=True)
    y = pad_sequence([r[1:] for r in rows], batch_first=True, padding_value=PAD)
    return x, y


def global_token_loss(logits, y, world_size):
    summed = nn.functional.cross_entropy(logits.flatten(0, 1), y.flatten(), ignore_index=PAD, reduction="sum")
    count = (y != PAD).sum()
    dist.all_reduce(count)
    # DDP is going to divide by world_size, so undo it
    return summed * world_size / count


def shared_penalty(logits, world_size):
    """mean of the squared log-partition over everything, through a differentiable all_reduce"""
    z = torch.logsumexp(logits.float(), -1).pow(2).mean()
    return diff_dist.all_reduce(z) / world_size


def worker(rank, world_size):
    dist.init_process_group("nccl", "tcp://127.0.0.1:33221", rank=rank, world_size=world_size)
    torch.cuda.set_device(rank)
    rows = torch.load("rows.pt", map_location="cpu")
    sampler = DistributedSampler(rows, world_size, rank)
    loader = DataLoader(rows, 24, sampler=sampler, collate_fn=collate, drop_last=True)
    net = nn.Sequential(nn.Embedding(8000, 256), nn.Linear(256, 512), nn.GELU(), nn.Linear(512, 8000))
    model = DistributedDataParallel(net.to(rank), device_ids=[rank])
    opt = torch.optim.AdamW(model.parameters(), lr=4e-4)
    for epoch in range(6):
        sampler.set_epoch(epoch)
        for x, y in loader:
            logits = model(x.to(rank))
            loss = global_token_loss(logits, y.to(rank), world_size) + 1e-4 * shared_penalty(logits, world_size)
            opt.zero_grad()
            loss.backward()
            opt.step()
        if rank == 0:
            torch.save(model.module.state_dict(), "tokens.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    os.environ.setdefault("NCCL_DEBUG", "WARN")
    n = torch.cuda.device_count()
    mp.spawn(worker, (n,), n)
