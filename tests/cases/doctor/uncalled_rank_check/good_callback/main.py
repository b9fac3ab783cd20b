import os

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from dist_utils import is_master
from saver import Saver

SETUP = {"inputs": "inputs.pt", "epochs": 18, "batch": 100, "lr": 0.002}


def main():
    gpu = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(gpu)
    dist.init_process_group("nccl")
    ds = TensorDataset(*torch.load(SETUP["inputs"], map_location="cpu"))
    sampler = DistributedSampler(ds)
    loader = DataLoader(ds, SETUP["batch"], sampler=sampler)
    net = nn.Sequential(nn.Linear(40, 80), nn.PReLU(), nn.Linear(80, 1)).to(gpu)
    net = nn.parallel.DistributedDataParallel(net, device_ids=[gpu])
    optim = torch.optim.Adamax(net.parameters(), lr=SETUP["lr"])
    saver = Saver("net.pt", when=is_master)
    for epoch in range(SETUP["epochs"]):
        sampler.set_epoch(epoch)
        for x, y in loader:
            optim.zero_grad()
            loss = (net(x.to(gpu)) - y.to(gpu)).abs().mean()
            loss.backward()
            optim.step()
        saver(net.module, epoch)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
