import time
import torch
import torch.nn as nn
import torch.nn.functional as F

# no loader: the data are two tensors on the device
torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

n, n_test, d = 1024, 256, 12
batch = 64
epochs = 8

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
opt = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9, weight_decay=1e-4)
sched = torch.optim.lr_scheduler.OneCycleLR(opt, max_lr=0.2, total_steps=epochs * (n // batch))

for epoch in range(epochs):
    t = time.time()
    model.train()
    perm = torch.randperm(n)
    total = 0.
    for i in range(0, n, batch):
        idx = perm[i:i+batch]
        xb, yb = x_train[idx], y_train[idx]
        loss = F.cross_entropy(model(xb), yb)
        opt.zero_grad()
        loss.backward()
        opt.step()
        sched.step()
        total += loss.item() * len(idx)

    model.eval()
    with torch.no_grad():
        right = 0
        for i in range(0, n_test, batch):
            right += (model(x_test[i:i+batch]).argmax(1) == y_test[i:i+batch]).sum().item()
    print(f"{epoch}: loss {total / n:.4f}, test {right / n_test:.4f}, {time.time() - t:.2f}s")

torch.save(model.state_dict(), "sliced.pt")
