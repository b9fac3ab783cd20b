"""Who saves, and where, is not settled before the program runs."""

import argparse
import os
import time
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


class Trainer:
    def __init__(self, model, folder):
        self.model, self.folder = model, folder
        self.results = []
        self.started = time.strftime("%H-%M-%S")

    def finish(self):
        self.write()
        if dist.get_rank() == 0:
            self.results.append(1.0)
        self.write_best()
        torch.save(self.model.state_dict(), f"{self.folder}/{self.started}.pt")  # LS25 possible

    def write(self):
        torch.save(self.model.state_dict(), f"{self.folder}/last.pt")  # LS25 possible


    def write_best(self):
        if len(self.results) > 0:
            torch.save(self.model.state_dict(), f"{self.folder}/best.pt")  # LS25 possible


class Leader(Trainer):
    def write(self):
        if dist.get_rank() == 0:
            super().write()


def save_plain(model, folder):
    if hasattr(model, "module"):
        torch.save(model.module.state_dict(), f"{folder}/plain.pt")  # LS25 possible


def save_failed(model, folder):
    try:
        model.module.check()
    except ValueError:
        torch.save(model.module.state_dict(), f"{folder}/failed.pt")  # LS25 possible


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    args = parser.parse_args()
    dist.init_process_group("nccl")
    local_rank = int(os.environ["LOCAL_RANK"])
    data = TensorDataset(torch.randn(1000, 784), torch.randint(10, (1000,)))
    sampler = DistributedSampler(data)
    loader = DataLoader(data, 64, sampler=sampler, num_workers=4)
    model = DDP(nn.Linear(784, 10).cuda(local_rank), device_ids=[local_rank])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(10):
        sampler.set_epoch(epoch)
        for x, y in loader:
            loss = nn.functional.cross_entropy(model(x.cuda(local_rank)), y.cuda(local_rank))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    Leader(model.module, args.folder).finish()
    save_plain(model, args.folder)
    save_failed(model, args.folder)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
