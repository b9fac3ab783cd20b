# %%
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

dist.init_process_group("nccl")
gpu = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(gpu)

# %%
net = nn.Sequential(nn.Conv2d(1, 16, 3), nn.BatchNorm2d(16), nn.ReLU(), nn.Flatten(), nn.LazyLinear(10))
net(torch.zeros(2, 1, 28, 28))
model = DDP(net.cuda(), device_ids=[gpu])
model = nn.SyncBatchNorm.convert_sync_batchnorm(model)  # LS11

# %%
data = TensorDataset(torch.randn(6000, 1, 28, 28), torch.randint(10, (6000,)))
sampler = DistributedSampler(data)
loader = DataLoader(data, batch_size=32, sampler=sampler, num_workers=2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05 * dist.get_world_size())
for epoch in range(4):
    sampler.set_epoch(epoch)
    for x, y in loader:
        loss = nn.functional.cross_entropy(model(x.cuda()), y.cuda())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

# %%
if dist.get_rank() == 0:
    torch.save(model.module.state_dict(), "digits.pt")
