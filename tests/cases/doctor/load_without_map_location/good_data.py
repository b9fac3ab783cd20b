"""torch.load of data, of a scheduler's numbers, and of weights on one rank: none piles up."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

dist.init_process_group("nccl")
rank = dist.get_rank()
local_rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(local_rank)

features, labels = torch.load("features.pt")
vocabulary = torch.load("vocabulary.pt")
data = TensorDataset(features, labels)
sampler = DistributedSampler(data)
loader = DataLoader(data, batch_size=64, sampler=sampler, num_workers=2)

model = nn.Linear(features.shape[1], len(vocabulary)).cuda()
if rank == 0 and os.path.exists("model.pt"):
    # DDP sends the weights of rank 0 to the others.
    model.load_state_dict(torch.load("model.pt"))
teacher = nn.Linear(features.shape[1], len(vocabulary))
teacher.load_state_dict(torch.load("teacher.pt", mmap=True))
teacher.cuda().eval()
model = DDP(model, device_ids=[local_rank])
optimizer = torch.optim.SGD(model.parameters(), lr=0.1 * dist.get_world_size())
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 20)
if os.path.exists("scheduler.pt"):
    scheduler.load_state_dict(torch.load("scheduler.pt"))

for epoch in range(20):
    sampler.set_epoch(epoch)
    for x, y in loader:
        x, y = x.cuda(), y.cuda()
        with torch.no_grad():
            soft = teacher(x).softmax(1)
        logits = model(x)
        loss = nn.functional.cross_entropy(logits, soft) + nn.functional.cross_entropy(logits, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    scheduler.step()
    if rank == 0:
        torch.save(model.module.state_dict(), "model.pt")
        torch.save(scheduler.state_dict(), "scheduler.pt")
