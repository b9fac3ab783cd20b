"""no_sync accumulation, short last window right, OneCycleLR, Subset validation, early stop by broadcast."""

import contextlib
import logging
import os
import pathlib
import tempfile
import time

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.utils.data import DataLoader, DistributedSampler, Subset, TensorDataset


def main():
    dist.init_process_group("nccl")
    rank, world, local = dist.get_rank(), dist.get_world_size(), int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    torch.manual_seed(42)
    folder = pathlib.Path(tempfile.mkdtemp())
    log = logging.getLogger("train")
    log.setLevel(logging.INFO)
    log.addHandler(logging.FileHandler(folder / f"rank{rank}.log", mode="w"))
    if rank == 0:
        log.addHandler(logging.StreamHandler())
    g = torch.Generator().manual_seed(0)
    X = torch.randn(413, 12, generator=g)
    Y = (X[:, :3].sum(1) > 0).long()
    train, val = torch.utils.data.random_split(
        TensorDataset(X, Y), [330, 83], generator=torch.Generator().manual_seed(1)
    )
    sampler = DistributedSampler(
        train, num_replicas=world, rank=rank, shuffle=True, drop_last=False
    )
    dl = DataLoader(train, 16, sampler=sampler, num_workers=0, pin_memory=True, drop_last=True)
    vl = DataLoader(Subset(val, range(rank, len(val), world)), 32)
    model = nn.Sequential(nn.Linear(12, 24), nn.ReLU(), nn.Dropout(0.1), nn.Linear(24, 2)).cuda(
        local
    )
    model = nn.parallel.DistributedDataParallel(
        model, device_ids=[local], gradient_as_bucket_view=True
    )
    torch.manual_seed(42 + rank)
    accum, epochs, n = 4, 3, len(dl)
    windows = -(-n // accum)
    opt = torch.optim.AdamW(model.parameters(), 1e-2)
    sched = torch.optim.lr_scheduler.OneCycleLR(opt, 1e-2, total_steps=windows * epochs)
    best, bad = float("inf"), 0
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        model.train()
        t = time.time()
        for i, (x, y) in enumerate(dl):
            last = (i + 1) % accum == 0 or i + 1 == n
            size = accum if i < n - n % accum else n % accum
            with contextlib.nullcontext() if last else model.no_sync():
                loss = nn.functional.cross_entropy(model(x.cuda(local)), y.cuda(local)) / size
                loss.backward()
            if last:
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                opt.step()
                sched.step()
                opt.zero_grad(set_to_none=True)
            log.info(f"rank {rank} batch {i} loss {loss.item()!r}")
        model.eval()
        tot = torch.zeros(3, device=f"cuda:{local}")
        with torch.inference_mode():
            for x, y in vl:
                out = model.module(x.cuda(local))
                y = y.cuda(local)
                tot += torch.stack(
                    [
                        nn.functional.cross_entropy(out, y, reduction="sum"),
                        (out.argmax(1) == y).sum(),
                        torch.tensor(float(len(y))),
                    ]
                )
        dist.all_reduce(tot)
        vloss, acc = (tot[0] / tot[2]).item(), (tot[1] / tot[2]).item()
        print(f"epoch {epoch} val loss {vloss:.4f} acc {acc:.4f} time {time.time() - t:.3f}s")
        stop = torch.zeros(1, device="cuda")
        if rank == 0:
            bad = 0 if vloss < best else bad + 1
            if vloss < best:
                best = vloss
                torch.save(model.module.state_dict(), folder / "best.pt.tmp")
                os.replace(folder / "best.pt.tmp", folder / "best.pt")
            stop += bad >= 2
        dist.broadcast(stop, src=0)
        if stop.item():
            break
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
