import contextlib
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class Trainer:
    def __init__(self, model, data, accumulate=8, lr=1e-3):
        self.rank, self.n_procs = dist.get_rank(), dist.get_world_size()
        self.gpu = int(os.environ["LOCAL_RANK"])
        self.accumulate = accumulate
        self.sampler = DistributedSampler(data)
        self.loader = DataLoader(data, batch_size=8, sampler=self.sampler, drop_last=True)
        self.model = DistributedDataParallel(model.to(self.gpu), device_ids=[self.gpu])
        self.opt = torch.optim.AdamW(self.model.parameters(), lr=lr)

    def micro_step(self, x, y, last):
        context = contextlib.nullcontext() if last else self.model.no_sync()
        with context:
            out = self.model(x.to(self.gpu, non_blocking=True))
            loss = nn.functional.cross_entropy(out, y.to(self.gpu, non_blocking=True))
            scaled = loss / (self.accumulate * self.n_procs)  # LS37
            scaled.backward()
        return loss.detach()

    def fit(self, epochs):
        for epoch in range(epochs):
            self.sampler.set_epoch(epoch)
            self.model.train()
            self.opt.zero_grad()
            for i, (x, y) in enumerate(self.loader):
                last = (i + 1) % self.accumulate == 0
                loss = self.micro_step(x, y, last)
                if last:
                    self.opt.step()
                    self.opt.zero_grad()
            self.opt.zero_grad()
            if self.rank == 0:
                print(f"{epoch}: {loss.item():.4f}")
        if self.rank == 0:
            torch.save(self.model.module.state_dict(), "seqs.pt")


def load():
    x, y = torch.load("seqs_train.pt", map_location="cpu")
    return TensorDataset(x, y)


if __name__ == "__main__":
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    net = nn.Sequential(nn.Embedding(64, 128), nn.Flatten(), nn.Linear(128 * 100, 6))
    Trainer(net, load()).fit(epochs=5)
    dist.destroy_process_group()
