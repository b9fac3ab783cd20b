import os

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class Trainer:
    """Data parallel by hand: no wrapper, the gradients are added up after backward."""

    def __init__(self, model, data, accumulate=2, lr=1e-3):
        self.rank, self.n_procs = dist.get_rank(), dist.get_world_size()
        self.gpu = int(os.environ["LOCAL_RANK"])
        self.accumulate = accumulate
        self.sampler = DistributedSampler(data)
        self.loader = DataLoader(data, batch_size=8, sampler=self.sampler, drop_last=True)
        self.model = model.to(self.gpu)
        for tensor in self.model.state_dict().values():
            dist.broadcast(tensor, src=0)
        self.opt = torch.optim.AdamW(self.model.parameters(), lr=lr)

    def add_up(self):
        for p in self.model.parameters():
            if p.grad is not None:
                dist.all_reduce(p.grad, op=dist.ReduceOp.SUM)

    def fit(self, epochs):
        for epoch in range(epochs):
            self.sampler.set_epoch(epoch)
            self.opt.zero_grad()
            for i, (x, y) in enumerate(self.loader):
                out = self.model(x.to(self.gpu))
                loss = nn.functional.cross_entropy(out, y.to(self.gpu))
                loss = loss / (self.accumulate * self.n_procs)
                loss.backward()
                if (i + 1) % self.accumulate == 0:
                    self.add_up()
                    self.opt.step()
                    self.opt.zero_grad()
            self.opt.zero_grad()
        if self.rank == 0:
            torch.save(self.model.state_dict(), "seqs.pt")


if __name__ == "__main__":
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    xs, ys = torch.load("seqs_train.pt", map_location="cpu")
    net = nn.Sequential(nn.Embedding(64, 128), nn.Flatten(), nn.Linear(128 * 100, 6))
    Trainer(net, TensorDataset(xs, ys)).fit(epochs=5)
    dist.destroy_process_group()
