"""Early stopping: rank 0 decides, and tells the others."""

import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


class Trainer:
    def __init__(self, train_data, valid_data):
        self.rank = dist.get_rank()
        self.device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        self.model = DDP(nn.Linear(20, 2).to(self.device), device_ids=[self.device.index])
        self.sampler = DistributedSampler(train_data)
        self.train_loader = DataLoader(train_data, 64, sampler=self.sampler, num_workers=2)
        self.valid_loader = DataLoader(valid_data, 256, num_workers=2)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-3)

    def train_epoch(self, epoch):
        self.sampler.set_epoch(epoch)
        self.model.train()
        for x, y in self.train_loader:
            loss = F.cross_entropy(self.model(x.to(self.device)), y.to(self.device))
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()

    @torch.no_grad()
    def validate(self):
        net = self.model.module.eval()
        right = sum(
            (net(x.to(self.device)).argmax(1).cpu() == y).sum().item() for x, y in self.valid_loader
        )
        return right / len(self.valid_loader.dataset)

    def fit(self, epochs, patience=5):
        best, waited = 0.0, 0
        stop = torch.zeros(1, device=self.device)
        for epoch in range(epochs):
            self.train_epoch(epoch)
            if self.rank == 0:
                accuracy = self.validate()
                if accuracy > best:
                    best, waited = accuracy, 0
                    torch.save(self.model.module.state_dict(), "best.pt")
                else:
                    waited += 1
                if waited >= patience:
                    stop.fill_(1)
            dist.broadcast(stop, src=0)
            if stop.item():
                break


if __name__ == "__main__":
    dist.init_process_group("nccl")
    every = TensorDataset(torch.randn(5000, 20), torch.randint(2, (5000,)))
    Trainer(every, TensorDataset(*every[:1000])).fit(100)
    dist.destroy_process_group()
