import math

import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

CFG = dict(file="higgs.npz", bs=1024, epochs=15, lr=2e-3, warmup=150)


def lr_at(it, horizon):
    if it < CFG["warmup"]:
        return (it + 1) / CFG["warmup"]
    return max(0.0, (horizon - it) / (horizon - CFG["warmup"]))


def main_worker(rank, world_size):
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", "tcp://127.0.0.1:10078", rank=rank, world_size=world_size)
    z = np.load(CFG["file"])
    ds = TensorDataset(torch.from_numpy(z["features"]).float(), torch.from_numpy(z["target"]).long())
    sampler = DistributedSampler(ds, world_size, rank)
    dl = DataLoader(ds, CFG["bs"], sampler=sampler)
    net = nn.Sequential(nn.Linear(z["features"].shape[1], 300), nn.ReLU(), nn.Linear(300, 2)).to(rank)
    model = nn.parallel.DistributedDataParallel(net, device_ids=[rank])
    opt = torch.optim.AdamW(model.parameters(), lr=CFG["lr"])
    n_mine = math.ceil(len(ds) / world_size)
    steps_per_epoch = math.ceil(n_mine / CFG["bs"])
    horizon = steps_per_epoch * CFG["epochs"]
    sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda it: lr_at(it, horizon))
    for ep in range(CFG["epochs"]):
        sampler.set_epoch(ep)
        for a, t in dl:
            opt.zero_grad()
            loss = nn.functional.cross_entropy(model(a.to(rank)), t.to(rank))
            loss.backward()
            opt.step()
            sched.step()
    if rank == 0:
        torch.save(model.module.state_dict(), "higgs.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    world = torch.cuda.device_count()
    mp.spawn(main_worker, args=(world,), nprocs=world)
