"""Warms up too fast, and then each rank has a rate of its own."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.optim.lr_scheduler import LinearLR, ReduceLROnPlateau
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def main(epochs=3):
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    x = torch.randn(64, 5)
    data = TensorDataset(x, x.sum(1, keepdim=True))
    sampler = DistributedSampler(data)
    loader = DataLoader(data, 4, sampler=sampler)
    model = DDP(nn.Linear(5, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    warmup = LinearLR(optimizer, 0.1, total_iters=8)
    plateau = ReduceLROnPlateau(optimizer, patience=0, threshold=0.5)
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        total = 0.0
        for inputs, targets in loader:
            loss = nn.functional.mse_loss(model(inputs), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if epoch == 0:
                for _ in range(dist.get_world_size()):
                    warmup.step()  # LS23
            total += loss.item()
        plateau.step(total / len(loader))  # LS23
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
