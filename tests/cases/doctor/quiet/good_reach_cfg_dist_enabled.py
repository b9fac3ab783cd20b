import os
import sys
from types import SimpleNamespace

import torch
import torch.distributed as dist
import yaml
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset
from torch.utils.tensorboard import SummaryWriter


def namespaces(d):
    return SimpleNamespace(**{k: namespaces(v) if isinstance(v, dict) else v for k, v in d.items()})


def make_writer(cfg):
    if cfg.dist.enabled:
        return SummaryWriter(cfg.log.dir) if dist.get_rank() == 0 else None
    else:
        return SummaryWriter(cfg.log.dir)


def make_loader(cfg, ds):
    if not cfg.dist.enabled:
        return DataLoader(ds, batch_size=cfg.train.batch, shuffle=True)
    return DataLoader(ds, batch_size=cfg.train.batch, sampler=DistributedSampler(ds))


def main(cfg):
    device = torch.device("cuda:0")
    if cfg.dist.enabled:
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
        dist.init_process_group(cfg.dist.backend)
    x, y = torch.load(cfg.data.file, map_location="cpu")
    loader = make_loader(cfg, TensorDataset(x, y))
    writer = make_writer(cfg)
    model = nn.Sequential(nn.Linear(x.shape[1], 64), nn.ReLU(), nn.Linear(64, 3)).to(device)
    if cfg.dist.enabled:
        model = DDP(model, device_ids=[device.index])
    opt = torch.optim.Adam(model.parameters(), lr=cfg.train.lr)
    for epoch in range(cfg.train.epochs):
        if cfg.dist.enabled:
            loader.sampler.set_epoch(epoch)
        for a, b in loader:
            opt.zero_grad()
            loss = nn.functional.cross_entropy(model(a.to(device)), b.to(device))
            loss.backward()
            opt.step()
        if writer is not None:
            writer.add_scalar("loss", loss.item(), epoch)
    if cfg.dist.enabled:
        if dist.get_rank() == 0:
            torch.save(model.module.state_dict(), cfg.log.weights)
        dist.destroy_process_group()
    else:
        torch.save(model.state_dict(), cfg.log.weights)


if __name__ == "__main__":
    with open(sys.argv[1]) as f:
        main(namespaces(yaml.safe_load(f)))
