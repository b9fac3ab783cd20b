"""After the encoder is thawed the model is wrapped once more."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Linear(30, 60)
        self.head = nn.Linear(60, 3)
        for p in self.encoder.parameters():
            p.requires_grad = False

    def forward(self, x):
        return self.head(torch.relu(self.encoder(x)))


def main():
    dist.init_process_group("nccl")
    gpu = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(gpu)
    model = DDP(Net().cuda(), device_ids=[gpu])
    data = TensorDataset(torch.randn(900, 30), torch.randint(3, (900,)))
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=90, sampler=sampler, num_workers=2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1 * dist.get_world_size())
    for epoch in range(10):
        if epoch == 5:
            for p in model.module.encoder.parameters():
                p.requires_grad = True
            model = DDP(model.module, device_ids=[gpu])
        sampler.set_epoch(epoch)
        for x, y in loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x.cuda()), y.cuda()).backward()
            optimizer.step()
    if dist.get_rank() == 0:
        torch.save(model.module.state_dict(), "net.pt")


if __name__ == "__main__":
    main()
