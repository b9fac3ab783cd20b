import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

world_size = int(os.environ.get("WORLD_SIZE", 1))
rank = int(os.environ.get("RANK", 0))
local_rank = int(os.environ.get("LOCAL_RANK", 0))
torch.cuda.set_device(local_rank)
if world_size > 1:
    dist.init_process_group("nccl")

torch.manual_seed(0)
device = torch.device("cuda", local_rank)
images = torch.randn(96, 3, 8, 8)
data = TensorDataset(images, images.mean((1, 2, 3)).gt(0).long())
sampler = DistributedSampler(data) if world_size > 1 else None
loader = DataLoader(
    data, batch_size=16 // world_size, shuffle=sampler is None, sampler=sampler, pin_memory=True
)
model = nn.Sequential(
    nn.Conv2d(3, 6, 3), nn.BatchNorm2d(6), nn.ReLU(), nn.Flatten(), nn.Linear(216, 2)
).cuda()
if world_size > 1:
    model = DistributedDataParallel(model, device_ids=[local_rank])
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)

for epoch in range(3):
    if sampler is not None:
        sampler.set_epoch(epoch)
    for inputs, targets in loader:
        loss = nn.functional.cross_entropy(model(inputs.to(device)), targets.to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    if rank == 0:
        torch.save(getattr(model, "module", model).state_dict(), "model.pt")
