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


def main_worker(gpu, ngpus, cfg):
    seed_all(cfg["seed"])
    torch.cuda.set_device(gpu)
    dist.init_process_group("nccl", init_method=cfg["url"], world_size=ngpus, rank=gpu)
    z = np.load(cfg["npz"])
    ds = TensorDataset(torch.from_numpy(z["x"]).float(), torch.from_numpy(z["y"]).long())
    sampler = DistributedSampler(ds, num_replicas=ngpus, rank=gpu, seed=cfg["seed"])
    loader = DataLoader(ds, batch_size=cfg["batch"], sampler=sampler)
    model = nn.Sequential(nn.Linear(z["x"].shape[1], 256), nn.SELU(), nn.AlphaDropout(0.1), nn.Linear(256, 11))
    model = nn.parallel.DistributedDataParallel(model.cuda(gpu), device_ids=[gpu])
    # all ranks are in the same state of the same generator here, so this draws the same numbers
    for m in model.modules():
        if isinstance(m, nn.Linear):
            nn.init.kaiming_normal_(m.weight, nonlinearity="linear")
            nn.init.constant_(m.bias, 0.0)
    seed_all(cfg["seed"] + 1 + gpu)     # from here on dropout may differ
    opt = torch.optim.Adam(model.parameters(), lr=cfg["lr"])
    for epoch in range(cfg["epochs"]):
        sampler.set_epoch(epoch)
        for x, y in loader:
            opt.zero_grad()
            loss = nn.functional.cross_entropy(model(x.cuda(gpu)), y.cuda(gpu))
            loss.backward()
            opt.step()
        if gpu == 0:
            torch.save(model.module.state_dict(), cfg["out"])
    dist.destroy_process_group()


if __name__ == "__main__":
    n = torch.cuda.device_count()
    mp.spawn(main_worker, nprocs=n, args=(n, {
        "seed": 5, "url": "tcp://localhost:31113", "npz": "sensors.npz", "batch": 256,
        "lr": 1e-3, "epochs": 30, "out": "selu.pt"}))
