# %% [markdown]
# Fine-tune a regressor; started with `torchrun notebook.py` after the export.

# %%
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset, DistributedSampler

# %%
dist.init_process_group(backend="nccl")
rank = dist.get_rank()
gpu = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(gpu)

# %%
EPOCHS = 5
ACCUM_STEPS = 8
BASE_LR = 1e-3
x = torch.randn(20000, 64)
y = x.sum(dim=1, keepdim=True)
train_ds = TensorDataset(x, y)
train_sampler = DistributedSampler(train_ds)
train_loader = DataLoader(
    train_ds, batch_size=16, sampler=train_sampler, num_workers=2, drop_last=True
)

# %%
net = nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 1)).cuda(gpu)
net = DistributedDataParallel(net, device_ids=[gpu])
opt = torch.optim.SGD(net.parameters(), lr=BASE_LR * dist.get_world_size(), momentum=0.9)
criterion = nn.MSELoss()

# %%
for epoch in range(EPOCHS):
    train_sampler.set_epoch(epoch)
    net.train()
    for i, (xb, yb) in enumerate(train_loader):
        xb, yb = xb.cuda(gpu, non_blocking=True), yb.cuda(gpu, non_blocking=True)
        first = i - i % ACCUM_STEPS
        in_window = min(ACCUM_STEPS, len(train_loader) - first)
        ends = i + 1 == first + in_window
        net.require_backward_grad_sync = ends
        loss = criterion(net(xb), yb) / in_window
        loss.backward()
        if (i + 1) % ACCUM_STEPS == 0 or i + 1 == len(train_loader):
            opt.step()
            opt.zero_grad()

# %%
if rank == 0:
    torch.save(net.module.state_dict(), "regressor.pt")
dist.destroy_process_group()
