"""A trainer that starts with a frozen encoder and thaws it after some epochs."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Linear(300, 100)
        self.head = nn.Linear(100, 12)

    def forward(self, x):
        return self.head(torch.tanh(self.encoder(x)))


class Trainer:
    def __init__(self, data, thaw_at=3):
        self.gpu = int(os.environ["LOCAL_RANK"])
        model = Tagger().cuda(self.gpu)
        for p in model.encoder.parameters():
            p.requires_grad = False
        self.model = DDP(model, device_ids=[self.gpu])
        self.sampler = DistributedSampler(data)
        self.loader = DataLoader(data, batch_size=64, sampler=self.sampler, num_workers=2)
        lr = 1e-3 * dist.get_world_size()
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=lr)
        self.thaw_at = thaw_at

    def thaw(self):
        for p in self.model.module.encoder.parameters():
            p.requires_grad = True  # LS11

    def train(self, epochs):
        for epoch in range(epochs):
            if epoch == self.thaw_at:
                self.thaw()
            self.sampler.set_epoch(epoch)
            for x, y in self.loader:
                loss = nn.functional.cross_entropy(self.model(x.cuda()), y.cuda())
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
            if dist.get_rank() == 0:
                torch.save(self.model.module.state_dict(), "tagger.pt")


if __name__ == "__main__":
    dist.init_process_group("nccl")
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    Trainer(TensorDataset(torch.randn(6400, 300), torch.randint(12, (6400,)))).train(10)
    dist.destroy_process_group()
