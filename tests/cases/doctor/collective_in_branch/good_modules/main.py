"""All ranks evaluate, with a function that reduces."""

import os

import torch
import torch.distributed as dist
from measure import evaluate
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def is_main_process():
    return dist.get_rank() == 0


def main():
    dist.init_process_group("nccl")
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    model = DDP(nn.Linear(32, 4).to(device), device_ids=[device.index])
    data = TensorDataset(torch.randn(4000, 32), torch.randint(4, (4000,)))
    test = TensorDataset(torch.randn(400, 32), torch.randint(4, (400,)))
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=50, sampler=sampler, num_workers=2)
    test_loader = DataLoader(test, batch_size=50, num_workers=2)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(10):
        sampler.set_epoch(epoch)
        model.train()
        for x, y in loader:
            loss = nn.functional.cross_entropy(model(x.to(device)), y.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        accuracy = evaluate(model.module, test_loader, device)
        if is_main_process():
            print(accuracy)
            torch.save(model.module.state_dict(), "four.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
