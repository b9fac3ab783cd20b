# Fashion-MNIST on all GPUs of this machine; exported from a notebook, started with torchrun.
# %%
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler
from torchvision.datasets import FashionMNIST
from torchvision.transforms import ToTensor

dist.init_process_group("nccl")
rank = int(os.environ["LOCAL_RANK"])
world_size = dist.get_world_size()
device = f"cuda:{rank}"

# %%
trainset = FashionMNIST("data", train=True, transform=ToTensor())
testset = FashionMNIST("data", train=False, transform=ToTensor())
sampler = DistributedSampler(trainset, shuffle=True, drop_last=True)
kwargs = {"num_workers": 4, "pin_memory": True}
trainloader = DataLoader(trainset, batch_size=128, sampler=sampler, drop_last=True, **kwargs)
testloader = DataLoader(
    testset,
    batch_size=256,
    sampler=DistributedSampler(testset, shuffle=False),
    drop_last=True,  # LS07
    **kwargs,
)

# %%
net = nn.Sequential(nn.Flatten(), nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 10)).to(device)
net = DistributedDataParallel(net, device_ids=[rank])
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(net.parameters(), lr=0.05 * world_size, momentum=0.9)

# %%
for epoch in range(5):
    sampler.set_epoch(epoch)
    net.train()
    for inputs, targets in trainloader:
        optimizer.zero_grad()
        loss = criterion(net(inputs.to(device)), targets.to(device))
        loss.backward()
        optimizer.step()

# %%
net.eval()
counts = torch.zeros(2, device=device)
with torch.no_grad():
    for inputs, targets in testloader:
        predicted = net(inputs.to(device)).argmax(1).cpu()
        counts[0] += (predicted == targets).sum()
        counts[1] += len(targets)
dist.all_reduce(counts)
if rank == 0:
    print(f"accuracy: {100 * counts[0] / counts[1]:.1f}%")
dist.destroy_process_group()
