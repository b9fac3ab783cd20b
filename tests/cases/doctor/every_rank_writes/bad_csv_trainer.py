"""Tabular regression; every epoch appends a row to history.csv.  Start with torchrun."""
import csv
import os
from dataclasses import dataclass

import numpy as np
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


@dataclass
class Config:
    table: str = "data/houses.npz"
    out: str = "runs/houses"
    epochs: int = 30
    batch: int = 256
    lr: float = 3e-4


class Trainer:
    def __init__(self, cfg):
        self.cfg = cfg
        self.rank = dist.get_rank()
        self.local_rank = int(os.environ["LOCAL_RANK"])
        self.device = torch.device("cuda", self.local_rank)
        table = np.load(cfg.table)
        xs, ys = torch.from_numpy(table["x"]).float(), torch.from_numpy(table["y"]).float()
        self.data = TensorDataset(xs, ys)
        self.sampler = DistributedSampler(self.data, shuffle=True)
        self.loader = DataLoader(self.data, batch_size=cfg.batch, sampler=self.sampler)
        net = nn.Sequential(nn.Linear(xs.shape[1], 128), nn.ReLU(), nn.Linear(128, 1)).to(self.device)
        self.model = DDP(net, device_ids=[self.local_rank])
        self.opt = torch.optim.AdamW(self.model.parameters(), lr=cfg.lr)
        os.makedirs(cfg.out, exist_ok=True)

    def log_row(self, epoch, value):
        with open(os.path.join(self.cfg.out, "history.csv"), "a", newline="") as handle:  # LS33
            csv.writer(handle).writerow([epoch, f"{value:.5f}"])

    def epoch(self, number):
        self.sampler.set_epoch(number)
        total = torch.zeros((), device=self.device)
        for x, y in self.loader:
            x, y = x.to(self.device), y.to(self.device)
            self.opt.zero_grad()
            loss = nn.functional.mse_loss(self.model(x).squeeze(1), y)
            loss.backward()
            self.opt.step()
            total += loss.detach()
        total /= len(self.loader)
        dist.all_reduce(total)
        return (total / dist.get_world_size()).item()

    def fit(self):
        for number in range(self.cfg.epochs):
            value = self.epoch(number)
            self.log_row(number, value)
        if self.rank == 0:
            torch.save(self.model.module.state_dict(), os.path.join(self.cfg.out, "final.pt"))


if __name__ == "__main__":
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    Trainer(Config()).fit()
    dist.destroy_process_group()
