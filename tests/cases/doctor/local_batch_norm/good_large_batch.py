# %%
import os

import torch
import torch.distributed as dist
import torchvision
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler
from torchvision import models, transforms

dist.init_process_group("nccl")
gpu = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(gpu)

# %%
BATCH = 64
large = transforms.Compose([transforms.Resize((224, 224)), transforms.ToTensor()])
data = torchvision.datasets.ImageFolder("scans/train", large)
sampler = DistributedSampler(data)
loader = DataLoader(data, batch_size=BATCH, sampler=sampler, num_workers=8, pin_memory=True)

# %%
model = models.resnet50(num_classes=len(data.classes)).cuda()
model = DDP(model, device_ids=[gpu])
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4 * dist.get_world_size())

# %%
for epoch in range(15):
    sampler.set_epoch(epoch)
    model.train()
    for x, y in loader:
        loss = nn.functional.cross_entropy(model(x.cuda()), y.cuda())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

# %%
if dist.get_rank() == 0:
    torch.save(model.module.state_dict(), "resnet50.pt")
