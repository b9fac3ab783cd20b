"""A trainer with mp.spawn; the rate grows with the number of processes."""

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.optim import SGD
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


class Trainer:
    def __init__(self, rank, net, data, batch=256, lr=0.4):
        self.rank = rank
        self.model = DDP(net.to(rank), device_ids=[rank])
        self.sampler = DistributedSampler(data)
        self.loader = DataLoader(data, batch, sampler=self.sampler, num_workers=2)
        self.optimizer = SGD(self.model.parameters(), lr=lr, momentum=0.9, nesterov=True)

    def train(self, epochs):
        for epoch in range(epochs):
            self.sampler.set_epoch(epoch)
            for inputs, targets in self.loader:
                self.train_step(inputs.to(self.rank), targets.to(self.rank))

    def train_step(self, inputs, targets):
        loss = nn.functional.cross_entropy(self.model(inputs), targets)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()

    def save(self, path):
        if self.rank == 0:
            torch.save(self.model.module.state_dict(), path)


def worker(rank, size):
    dist.init_process_group("nccl", init_method="tcp://localhost:12355", rank=rank, world_size=size)
    torch.cuda.set_device(rank)
    data = TensorDataset(torch.randn(50000, 128), torch.randint(100, (50000,)))
    trainer = Trainer(rank, nn.Linear(128, 100), data, lr=0.1 * size)
    trainer.train(30)
    trainer.save("linear.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    mp.spawn(worker, args=(4,), nprocs=4)
