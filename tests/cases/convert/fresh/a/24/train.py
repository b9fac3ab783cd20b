import argparse
import os

import torch
import torch.nn.functional as F
from torch.utils.data import BatchSampler, DataLoader, RandomSampler

from gin import GIN
from graphs import collate, make_split
from tracker import RunTracker


def build_parser():
    p = argparse.ArgumentParser("graph regression")
    p.add_argument("--epochs", type=int, default=8)
    p.add_argument("--batch", type=int, default=50)
    p.add_argument("--lr", type=float, default=2e-3)
    p.add_argument("--resume", type=str, default=None)
    p.add_argument("--dir", type=str, default="gin_run")
    p.add_argument("--seed", type=int, default=4)
    return p


def mae(model, loader, device):
    model.eval()
    err, n = 0.0, 0
    with torch.no_grad():
        for b in loader:
            b = b.to(device)
            err += (model(b) - b.y).abs().sum().item()
            n += b.num_graphs
    return err / n


def main():
    opt = build_parser().parse_args()
    torch.manual_seed(opt.seed)
    os.makedirs(opt.dir, exist_ok=True)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

    train_graphs, valid_graphs, test_graphs = make_split(1000, 1), make_split(200, 2), make_split(200, 3)
    y = torch.tensor([g.y for g in train_graphs])
    mean, std = y.mean().item(), y.std().item()
    train_loader = DataLoader(train_graphs, collate_fn=collate,
                              batch_sampler=BatchSampler(RandomSampler(train_graphs), opt.batch, drop_last=False))
    valid_loader = DataLoader(valid_graphs, batch_size=100, collate_fn=collate)
    test_loader = DataLoader(test_graphs, batch_size=100, collate_fn=collate)

    model = GIN().to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=opt.lr)
    scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, "min", factor=0.5, patience=1)
    first, best = 1, float("inf")
    if opt.resume is not None and os.path.isfile(opt.resume):
        state = torch.load(opt.resume, map_location="cpu")
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        scheduler.load_state_dict(state["scheduler"])
        first, best = state["epoch"] + 1, state["best"]
        print("resumed at epoch", first)

    with RunTracker(os.path.join(opt.dir, "log.jsonl")) as tracker:
        for epoch in range(first, opt.epochs + 1):
            model.train()
            total = 0
            for batch in train_loader:
                batch = batch.to(device)
                target = (batch.y - mean) / std
                loss = F.l1_loss(model(batch) / std - mean / std, target)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                total += loss.item() * batch.num_graphs
            v = mae(model, valid_loader, device)
            scheduler.step(v)
            lr = optimizer.param_groups[0]["lr"]
            print(f"epoch {epoch:3d}  train {total / len(train_graphs):.4f}  valid MAE {v:.4f}  lr {lr:.1e}")
            tracker.log(epoch=epoch, train=total / len(train_graphs), valid=v, lr=lr)
            if v < best:
                best = v
                torch.save(model.state_dict(), os.path.join(opt.dir, "best.pt"))
            torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "scheduler": scheduler.state_dict(),
                        "epoch": epoch, "best": best}, os.path.join(opt.dir, "last.pt"))
    model.load_state_dict(torch.load(os.path.join(opt.dir, "best.pt"), map_location=device))
    print(f"test MAE {mae(model, test_loader, device):.4f} (std of targets {std:.3f})")


if __name__ == "__main__":
    main()
