"""Only the validation has small batches, and there batch norm uses what it has learned."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def main(global_batch=512):
    dist.init_process_group("nccl")
    gpu = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(gpu)
    net = nn.Sequential(nn.Linear(40, 80), nn.BatchNorm1d(80), nn.ReLU(), nn.Linear(80, 4))
    model = DDP(net.cuda(), device_ids=[gpu])
    train_set = TensorDataset(torch.randn(5120, 40), torch.randint(4, (5120,)))
    val_set = TensorDataset(torch.randn(80, 40), torch.randint(4, (80,)))
    sampler = DistributedSampler(train_set)
    # The global batch is fixed, and so is the rate.
    batch = global_batch // dist.get_world_size()
    train_loader = DataLoader(train_set, batch_size=batch, sampler=sampler, num_workers=2)
    val_loader = DataLoader(val_set, batch_size=4, num_workers=2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1 * global_batch / 256)
    for epoch in range(10):
        sampler.set_epoch(epoch)
        model.train()
        for x, y in train_loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x.cuda()), y.cuda()).backward()
            optimizer.step()
        if dist.get_rank() == 0:
            net.eval()
            with torch.no_grad():
                right = sum((net(x.cuda()).argmax(1) == y.cuda()).sum() for x, y in val_loader)
            print(epoch, right.item() / len(val_set))
        dist.barrier()


if __name__ == "__main__":
    main()
