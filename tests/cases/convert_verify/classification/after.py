import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Subset, TensorDataset, random_split
from torch.utils.data.distributed import DistributedSampler

world_size = int(os.environ.get("WORLD_SIZE", 1))
rank = int(os.environ.get("RANK", 0))
if world_size > 1:
    dist.init_process_group("gloo")

torch.manual_seed(1)
x = torch.randn(230, 10)
data = TensorDataset(x, (x[:, 0] > x[:, 1]).long())
train_data, test_data = random_split(data, [150, 80])
sampler = DistributedSampler(train_data) if world_size > 1 else None
train_loader = DataLoader(
    train_data, batch_size=16 // world_size, shuffle=sampler is None, sampler=sampler
)
test_part = Subset(test_data, range(rank, len(test_data), world_size))
test_loader = DataLoader(test_part, batch_size=16)
model = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Dropout(0.3), nn.Linear(32, 2))
if world_size > 1:
    model = DistributedDataParallel(model)
    torch.manual_seed(rank)  # dropout differs between ranks
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
criterion = nn.CrossEntropyLoss()

for epoch in range(4):
    start = time.time()
    model.train()
    if sampler is not None:
        sampler.set_epoch(epoch)
    for inputs, targets in train_loader:
        optimizer.zero_grad()
        loss = criterion(model(inputs), targets)
        loss.backward()
        optimizer.step()
    if rank == 0:
        print(f"epoch {epoch}: {time.time() - start:.3f} seconds, last loss {loss.item():.4f}")
    model.eval()
    correct, total = 0, 0
    with torch.no_grad():
        for inputs, targets in test_loader:
            correct += (model(inputs).argmax(1) == targets).sum().item()
            total += len(targets)
    if world_size > 1:
        sums = torch.tensor([correct, total])
        dist.all_reduce(sums)
        correct, total = sums.tolist()
    if rank == 0:
        print(f"accuracy {correct}/{total} = {correct / total:.4f}")
