"""Training on CPUs over gloo: a checkpoint has no GPU to go to."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def load(model, path):
    model.load_state_dict(torch.load(path))


def main():
    dist.init_process_group("gloo")
    model = nn.Linear(10, 2)
    load(model, "linear.pt")
    model = DDP(model)
    data = TensorDataset(torch.randn(256, 10), torch.randint(2, (256,)))
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=32, sampler=sampler, num_workers=1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1 * dist.get_world_size())
    for epoch in range(4):
        sampler.set_epoch(epoch)
        for x, y in loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
    if dist.get_rank() == 0:
        torch.save(model.module.state_dict(), "linear.pt")


if __name__ == "__main__":
    main()
