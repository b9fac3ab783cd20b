"""Spawns when the machine has several cards, calls the worker itself when there is one."""
import os
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def worker(rank, n_gpus, opts):
    torch.cuda.set_device(rank)
    alone = n_gpus == 1
    if not alone:
        os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = "localhost", "23980"
        dist.init_process_group("nccl", rank=rank, world_size=n_gpus)
    x, y = torch.load(opts["file"], map_location="cpu")
    ds = TensorDataset(x, y)
    if alone:
        loader = DataLoader(ds, opts["batch"], shuffle=True)
        log = open(opts["log"], "w")
    else:
        loader = DataLoader(ds, opts["batch"], sampler=DistributedSampler(ds, n_gpus, rank))
        log = open(opts["log"], "w") if rank == 0 else open(os.devnull, "w")
    net = nn.Sequential(nn.Linear(x.size(1), 99), nn.ReLU(), nn.Linear(99, 1)).cuda()
    model = net if alone else DDP(net, device_ids=[rank])
    opt = torch.optim.RMSprop(model.parameters(), lr=opts["lr"])
    for epoch in range(opts["epochs"]):
        if not alone:
            loader.sampler.set_epoch(epoch)
        for a, b in loader:
            loss = nn.functional.l1_loss(model(a.cuda()), b.cuda())
            opt.zero_grad()
            loss.backward()
            opt.step()
        log.write(f"{epoch},{loss.item()}\n")
        if alone:
            torch.save(net.state_dict(), opts["ckpt"])
        elif rank == 0:
            torch.save(net.state_dict(), opts["ckpt"])
    log.close()
    if not alone:
        dist.destroy_process_group()


if __name__ == "__main__":
    options = dict(file="soil.pt", log="soil.csv", ckpt="soil_net.pt", batch=100, lr=1e-3, epochs=20)
    n = torch.cuda.device_count()
    if n > 1:
        mp.spawn(worker, args=(n, options), nprocs=n)
    else:
        worker(0, 1, options)
