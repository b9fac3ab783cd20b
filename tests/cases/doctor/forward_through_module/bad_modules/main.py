"""Training in several modules, started by torchrun."""

import os

import torch
import torch.distributed as dist
from engine import train_one_epoch, validate
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def main():
    dist.init_process_group("nccl")
    gpu = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(gpu)
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 2)).cuda(gpu)
    model = DDP(model, device_ids=[gpu])
    train_set = TensorDataset(torch.randn(4000, 64), torch.randint(2, (4000,)))
    val_set = TensorDataset(torch.randn(400, 64), torch.randint(2, (400,)))
    sampler = DistributedSampler(train_set)
    train_loader = DataLoader(train_set, batch_size=128, sampler=sampler, num_workers=2)
    val_loader = DataLoader(val_set, batch_size=128, num_workers=2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1 * dist.get_world_size())
    for epoch in range(10):
        sampler.set_epoch(epoch)
        train_one_epoch(model, train_loader, optimizer)
        if dist.get_rank() == 0:
            print(epoch, validate(model, val_loader))
            torch.save(model.module.state_dict(), "model.pt")
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
