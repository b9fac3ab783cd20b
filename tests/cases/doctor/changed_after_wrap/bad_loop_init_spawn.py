import random

import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def seed_all(seed):
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


def deep_net(n_in, n_out, depth=6, width=256):
    sizes = [n_in] + [width] * depth
    mods = []
    for a, b in zip(sizes, sizes[1:]):
        mods += [nn.Linear(a, b), nn.SELU()]
    return nn.Sequential(*mods, nn.Linear(width, n_out))


def main_worker(gpu, ngpus, cfg):
    seed_all(cfg["seed"] + gpu)
    torch.cuda.set_device(gpu)
    dist.init_process_group("nccl", init_method=cfg["url"], world_size=ngpus, rank=gpu)
    z = np.load(cfg["npz"])
    ds = TensorDataset(torch.from_numpy(z["x"]).float(), torch.from_numpy(z["y"]).long())
    sampler = DistributedSampler(ds, num_replicas=ngpus, rank=gpu, seed=cfg["seed"])
    loader = DataLoader(ds, batch_size=cfg["batch"], sampler=sampler)
    model = deep_net(z["x"].shape[1], int(z["y"].max()) + 1).cuda(gpu)
    model = nn.parallel.DistributedDataParallel(model, device_ids=[gpu])
    for m in model.modules():
        if isinstance(m, nn.Linear):
            nn.init.kaiming_normal_(m.weight, nonlinearity="linear")  # LS11
            nn.init.constant_(m.bias, 0.0)
    opt = torch.optim.Adam(model.parameters(), lr=cfg["lr"])
    for epoch in range(cfg["epochs"]):
        sampler.set_epoch(epoch)
        for x, y in loader:
            opt.zero_grad()
            loss = nn.functional.cross_entropy(model(x.cuda(gpu)), y.cuda(gpu))
            loss.backward()
            opt.step()
        if gpu == 0:
            print("epoch", epoch, "loss", loss.item())
            torch.save(model.module.state_dict(), cfg["out"])
    dist.destroy_process_group()


if __name__ == "__main__":
    n = torch.cuda.device_count()
    mp.spawn(main_worker, nprocs=n, args=(n, {
        "seed": 5, "url": "tcp://localhost:31112", "npz": "sensors.npz", "batch": 256,
        "lr": 1e-3, "epochs": 30, "out": "selu.pt"}))
