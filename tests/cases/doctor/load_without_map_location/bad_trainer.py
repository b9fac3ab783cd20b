"""A trainer with snapshots, in the way of the elastic tutorial."""

import os

import torch
import torch.nn.functional as F
from torch import nn
from torch.distributed import destroy_process_group, get_world_size, init_process_group
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


class Trainer:
    def __init__(self, model, loader, optimizer, every, path):
        self.local_rank = int(os.environ["LOCAL_RANK"])
        self.global_rank = int(os.environ["RANK"])
        self.model = model.to(self.local_rank)
        self.loader = loader
        self.optimizer = optimizer
        self.every = every
        self.path = path
        self.epochs_run = 0
        if os.path.exists(path):
            self._load_snapshot()
        self.model = DDP(self.model, device_ids=[self.local_rank])

    def _load_snapshot(self):
        snapshot = torch.load(self.path, weights_only=True)  # LS26
        self.model.load_state_dict(snapshot["MODEL"])
        self.epochs_run = snapshot["EPOCH"]

    def _save_snapshot(self, epoch):
        torch.save({"MODEL": self.model.module.state_dict(), "EPOCH": epoch}, self.path)

    def _run_batch(self, source, targets):
        self.optimizer.zero_grad()
        loss = F.cross_entropy(self.model(source), targets)
        loss.backward()
        self.optimizer.step()

    def train(self, epochs):
        for epoch in range(self.epochs_run, epochs):
            self.loader.sampler.set_epoch(epoch)
            for source, targets in self.loader:
                self._run_batch(source.to(self.local_rank), targets.to(self.local_rank))
            if self.global_rank == 0 and epoch % self.every == 0:
                self._save_snapshot(epoch)


def main():
    init_process_group("nccl")
    data = TensorDataset(torch.randn(2048, 20), torch.randint(4, (2048,)))
    model = nn.Linear(20, 4)
    # 1e-3 per process of 32 samples.
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3 * get_world_size())
    loader = DataLoader(
        data, batch_size=32, pin_memory=True, num_workers=2, sampler=DistributedSampler(data)
    )
    Trainer(model, loader, optimizer, 10, "snapshot.pt").train(100)
    destroy_process_group()


if __name__ == "__main__":
    main()
