# %%
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

dist.init_process_group("nccl")
rank = dist.get_rank()
gpu = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(gpu)

# %%
net = nn.Sequential(nn.Flatten(), nn.Linear(784, 256), nn.GELU(), nn.Linear(256, 10)).cuda()
ddp_net = DDP(net, device_ids=[gpu])
raw_net = ddp_net.module

# %%
dataset = TensorDataset(torch.randn(6000, 1, 28, 28), torch.randint(10, (6000,)))
sampler = DistributedSampler(dataset, shuffle=True)
train_loader = DataLoader(dataset, batch_size=64, sampler=sampler, num_workers=4)
base_lr = 1e-3
optimizer = torch.optim.Adam(ddp_net.parameters(), lr=base_lr * dist.get_world_size() ** 0.5)
accumulate = 4

# %%
for epoch in range(5):
    sampler.set_epoch(epoch)
    ddp_net.train()
    for i, (x, y) in enumerate(train_loader):
        out = raw_net(x.cuda())  # LS10
        loss = nn.functional.cross_entropy(out, y.cuda()) / accumulate
        if (i + 1) % accumulate == 0:
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        else:
            with ddp_net.no_sync():
                loss.backward()

# %%
if rank == 0:
    torch.save(raw_net.state_dict(), "mlp.pt")
