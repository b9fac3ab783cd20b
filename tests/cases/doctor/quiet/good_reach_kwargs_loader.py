import os

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

COMMON = {"num_workers": 2, "pin_memory": True}


def main_worker(rank, world_size, cfg):
    torch.cuda.set_device(rank)
    if cfg["distributed"]:
        dist.init_process_group("nccl", cfg["url"], rank=rank, world_size=world_size)
    x, y = torch.load(cfg["file"], map_location="cpu")
    ds = TensorDataset(x, y)

    loader_args = dict(COMMON, batch_size=cfg["batch"])
    if cfg["distributed"]:
        loader_args["sampler"] = DistributedSampler(ds, world_size, rank)
        loader_args.update(drop_last=True)
    else:
        loader_args["shuffle"] = True
    loader = DataLoader(ds, **loader_args)

    net = nn.Sequential(nn.Linear(x.shape[1], 77), nn.ReLU(), nn.Linear(77, 5)).cuda()
    model = DistributedDataParallel(net, device_ids=[rank]) if cfg["distributed"] else net
    opt = torch.optim.SGD(model.parameters(), **cfg["sgd"])
    for epoch in range(cfg["epochs"]):
        if cfg["distributed"]:
            loader_args["sampler"].set_epoch(epoch)
        for a, b in loader:
            loss = nn.functional.cross_entropy(model(a.cuda(non_blocking=True)), b.cuda(non_blocking=True))
            opt.zero_grad()
            loss.backward()
            opt.step()
        if rank == 0:       # rank is 0 as well when there is one process
            print(f"{epoch:4d} {loss.item():.5f}")
            torch.save(net.state_dict(), cfg["out"])
    if cfg["distributed"]:
        dist.destroy_process_group()


def main():
    n = torch.cuda.device_count()
    cfg = dict(file="wine.pt", batch=64, epochs=40, out="wine_net.pt", url="tcp://127.0.0.1:20902",
               sgd={"lr": 0.02, "momentum": 0.9, "nesterov": True}, distributed=n > 1 and "ALONE" not in os.environ)
    if cfg["distributed"]:
        mp.spawn(main_worker, args=(n, cfg), nprocs=n)
    else:
        main_worker(0, 1, cfg)


if __name__ == "__main__":
    main()
