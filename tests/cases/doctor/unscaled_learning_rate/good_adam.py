"""Adam: there is no rule that fits all, so nothing is said about its rate."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def main(epochs=10, batch_size=64, lr=1e-3):
    dist.init_process_group("nccl")
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    model = DDP(nn.Linear(784, 10).to(device), device_ids=[device.index])
    data = TensorDataset(torch.randn(1000, 784), torch.randint(10, (1000,)))
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size, sampler=sampler, num_workers=2)
    optimizer = torch.optim.Adam(model.parameters(), lr=lr)
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        for x, y in loader:
            loss = nn.functional.cross_entropy(model(x.to(device)), y.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    if dist.get_rank() == 0:
        torch.save(model.module.state_dict(), "last.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
