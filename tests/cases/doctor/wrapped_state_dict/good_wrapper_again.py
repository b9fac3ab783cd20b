"""The wrapper's state is saved, and loaded into the wrapper again."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


class Trainer:
    def __init__(self, model, data, path):
        self.gpu = int(os.environ["LOCAL_RANK"])
        self.model = DDP(model.cuda(self.gpu), device_ids=[self.gpu])
        self.sampler = DistributedSampler(data)
        self.loader = DataLoader(data, batch_size=64, sampler=self.sampler, num_workers=2)
        lr = 0.1 * dist.get_world_size()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=lr)
        self.path = path

    def resume(self):
        self.model.load_state_dict(torch.load(self.path, map_location=f"cuda:{self.gpu}"))

    def train(self, epochs):
        for epoch in range(epochs):
            self.sampler.set_epoch(epoch)
            for x, y in self.loader:
                self.optimizer.zero_grad()
                loss = nn.functional.cross_entropy(self.model(x.cuda()), y.cuda())
                loss.backward()
                self.optimizer.step()
            if dist.get_rank() == 0:
                torch.save(self.model.state_dict(), self.path)


def main():
    dist.init_process_group("nccl")
    data = TensorDataset(torch.randn(640, 5), torch.randint(2, (640,)))
    trainer = Trainer(nn.Linear(5, 2), data, "last.pt")
    if os.path.exists("last.pt"):
        trainer.resume()
    trainer.train(10)


if __name__ == "__main__":
    main()
