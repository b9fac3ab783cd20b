"""Each rank reads its own files: torchrun bad_shards.py."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(rank)
# The last shard is shorter.
count = 40 if rank == 0 else 28
x = torch.randn(count, 8)
loader = DataLoader(TensorDataset(x, x.sum(1, keepdim=True)), batch_size=4)
model = DDP(nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for epoch in range(2):
    for inputs, targets in loader:  # LS05
        optimizer.zero_grad()
        nn.functional.mse_loss(model(inputs), targets).backward()
        optimizer.step()
    total = torch.tensor([float(len(loader))])
    dist.all_reduce(total)
    print("epoch", epoch, "over")
dist.destroy_process_group()
