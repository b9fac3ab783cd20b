"""The first rank alone computes a metric over all ranks."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def report(loss):
    total = torch.tensor([loss])
    dist.all_reduce(total)  # LS29
    print("loss", total.item() / dist.get_world_size())


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    x = torch.randn(64, 5)
    data = TensorDataset(x, x.sum(1, keepdim=True))
    loader = DataLoader(data, 4, sampler=DistributedSampler(data))
    model = DDP(nn.Linear(5, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for number, (inputs, targets) in enumerate(loader):
        loss = nn.functional.mse_loss(model(inputs), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if number == 3 and dist.get_rank() == 0:
            report(loss.item())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
