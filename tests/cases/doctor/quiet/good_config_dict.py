"""Settings in a nested dictionary with overrides, loaders by their phase."""

import json
import os
import sys
from copy import deepcopy

import torch
import torch.distributed as dist
import torch.utils.data as tud
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

DEFAULT = {
    "seed": 0,
    "data": {"path": "/data/features.pt", "batch_size": 64, "num_workers": 4},
    "model": {"width": 512, "depth": 3, "classes": 100},
    "optim": {"name": "SGD", "kwargs": {"momentum": 0.9, "weight_decay": 5e-4}, "base_lr": 0.1},
    "trainer": {"epochs": 50, "save_dir": "runs/exp"},
}


def override(cfg, items):
    cfg = deepcopy(cfg)
    for item in items:
        key, value = item.split("=", 1)
        *path, last = key.split(".")
        node = cfg
        for part in path:
            node = node[part]
        node[last] = json.loads(value)
    return cfg


def build_model(width, depth, classes):
    layers = []
    for _ in range(depth):
        layers += [nn.LazyLinear(width), nn.ReLU(inplace=True)]
    return nn.Sequential(*layers, nn.LazyLinear(classes))


def build_loaders(cfg, rank, world):
    blob = torch.load(cfg["path"], map_location="cpu")
    sets = {phase: tud.TensorDataset(*blob[phase]) for phase in ("train", "val")}
    sampler = tud.DistributedSampler(sets["train"], world, rank)
    common = {"batch_size": cfg["batch_size"], "num_workers": cfg["num_workers"]}
    loaders = {
        "train": tud.DataLoader(sets["train"], sampler=sampler, drop_last=True, **common),
        "val": tud.DataLoader(tud.Subset(sets["val"], range(rank, len(sets["val"]), world)), **common),
    }
    return loaders, sampler


def run(cfg):
    dist.init_process_group("nccl")
    rank, world = dist.get_rank(), dist.get_world_size()
    local = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    torch.manual_seed(cfg["seed"] + rank)
    loaders, sampler = build_loaders(cfg["data"], rank, world)
    net = build_model(**cfg["model"]).cuda()
    net(next(iter(loaders["train"]))[0].cuda())
    model = DDP(net, device_ids=[local])
    optimizer_class = getattr(torch.optim, cfg["optim"]["name"])
    lr = cfg["optim"]["base_lr"] * cfg["data"]["batch_size"] * world / 256
    optimizer = optimizer_class(model.parameters(), lr=lr, **cfg["optim"]["kwargs"])
    for epoch in range(cfg["trainer"]["epochs"]):
        for phase in ["train", "val"]:
            training = phase == "train"
            if training:
                sampler.set_epoch(epoch)
            net.train(training)
            stats = torch.zeros(2, device="cuda")
            for x, y in loaders[phase]:
                x, y = x.cuda(), y.cuda()
                with torch.set_grad_enabled(training):
                    logits = model(x) if training else net(x)
                    loss = nn.functional.cross_entropy(logits, y)
                if training:
                    optimizer.zero_grad()
                    loss.backward()
                    optimizer.step()
                stats += torch.stack([(logits.argmax(1) == y).sum(), torch.tensor(len(y)).cuda()])
            dist.all_reduce(stats)
            if rank == 0:
                print(f"{epoch} {phase}: {stats[0] / stats[1]:.4f}")
        if rank == 0:
            os.makedirs(cfg["trainer"]["save_dir"], exist_ok=True)
            torch.save(net.state_dict(), os.path.join(cfg["trainer"]["save_dir"], "last.pt"))
    dist.destroy_process_group()


if __name__ == "__main__":
    run(override(DEFAULT, sys.argv[1:]))
