# uneven: 26 batches, 4 per step: the two left over at the end of an epoch make a step of their own
import argparse

import torch
import torch.nn as nn
from torch.amp import GradScaler, autocast
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--batch_size", default=16, type=int, help="samples per forward pass")
parser.add_argument("--accum_steps", default=4, type=int, help="forward passes per step")
parser.add_argument("--epochs", default=5, type=int)
parser.add_argument("--lr", default=0.05, type=float)
parser.add_argument("--max_norm", default=1.0, type=float)
args = parser.parse_args()

torch.manual_seed(99)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
use_amp = device.type == "cuda"


def make_data(n, seed):
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 20, generator=g)
    y = (x[:, :5].prod(dim=1) + x[:, 5] > 0).long()
    return TensorDataset(x, y)


train_loader = DataLoader(make_data(416, 0), batch_size=args.batch_size, shuffle=True)
val_loader = DataLoader(make_data(128, 1), batch_size=args.batch_size)

model = nn.Sequential(nn.Linear(20, 64), nn.GELU(), nn.LayerNorm(64), nn.Linear(64, 2)).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9, nesterov=True)
criterion = nn.CrossEntropyLoss()
scaler = GradScaler(enabled=use_amp)

steps = 0
for epoch in range(args.epochs):
    model.train()
    running = 0.0
    optimizer.zero_grad()
    for i, (x, y) in enumerate(train_loader):
        x, y = x.to(device), y.to(device)
        with autocast(device_type=device.type, enabled=use_amp):
            loss = criterion(model(x), y) / args.accum_steps
        scaler.scale(loss).backward()
        running += loss.item() * args.accum_steps

        if (i + 1) % args.accum_steps == 0 or i + 1 == len(train_loader):
            scaler.unscale_(optimizer)
            norm = nn.utils.clip_grad_norm_(model.parameters(), args.max_norm)
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
            steps += 1

    model.eval()
    val_loss, right = 0.0, 0
    with torch.no_grad():
        for x, y in val_loader:
            x, y = x.to(device), y.to(device)
            out = model(x)
            val_loss += criterion(out, y).item()
            right += (out.argmax(1) == y).sum().item()
    print("epoch %d, %3d steps: train %.4f, val %.4f, right %.3f, last norm %.3f" % (
        epoch, steps, running / len(train_loader), val_loss / len(val_loader),
        right / len(val_loader.dataset), norm))

torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(),
            "scaler": scaler.state_dict()}, "accumulated.pt")
