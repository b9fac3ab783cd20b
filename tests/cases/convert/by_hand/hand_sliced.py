import gc
import os
import time
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F

# torchrun starts one process per GPU; without it this is the only one
distributed = "RANK" in os.environ
rank, world_size = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
if distributed:
    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")

# no loader: the data are two tensors on the device
torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

n, n_test, d = 1024, 256, 12
batch = 64
epochs = 8
if batch % world_size:
    raise SystemExit("a batch of %d cannot be cut into %d equal parts" % (batch, world_size))

w_true = torch.randn(d, 4)
x_train = torch.randn(n, d)
y_train = (torch.tanh(x_train @ w_true) + 0.2 * torch.randn(n, 4)).argmax(1)
x_test = torch.randn(n_test, d)
y_test = torch.tanh(x_test @ w_true).argmax(1)

x_train, y_train = x_train.to(device), y_train.to(device)
x_test, y_test = x_test.to(device), y_test.to(device)

model = nn.Sequential(
    nn.Linear(d, 48),
    nn.ReLU(),
    nn.Linear(48, 4),
).to(device)
ddp = nn.parallel.DistributedDataParallel(model) if distributed else model
opt = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9, weight_decay=1e-4)
sched = torch.optim.lr_scheduler.OneCycleLR(opt, max_lr=0.2, total_steps=epochs * (n // batch))

for epoch in range(epochs):
    t = time.time()
    model.train()
    perm = torch.randperm(n)  # the same on all ranks, which share a seed
    total = 0.
    for i in range(0, n, batch):
        idx = perm[i:i+batch][rank::world_size]
        xb, yb = x_train[idx], y_train[idx]
        loss = F.cross_entropy(ddp(xb), yb)
        opt.zero_grad()
        loss.backward()
        opt.step()
        sched.step()
        total += loss.item() * len(idx)

    model.eval()
    with torch.no_grad():
        right = 0
        for i in range(rank * batch, n_test, world_size * batch):
            right += (model(x_test[i:i+batch]).argmax(1) == y_test[i:i+batch]).sum().item()
    sums = torch.tensor([total, right], dtype=torch.float64, device=device)
    if distributed:
        dist.all_reduce(sums)
    total, right = sums.tolist()
    if rank == 0:
        print(f"{epoch}: loss {total / n:.4f}, test {right / n_test:.4f}, {time.time() - t:.2f}s")

if rank == 0:
    torch.save(model.state_dict(), "sliced.pt")
if distributed:
    del ddp  # a wrapper that is still alive may abort the process when the group ends
    gc.collect()
    dist.destroy_process_group()
