"""Triplet metric learning; identities of the test set are never seen in training."""
import json
import os
import time

import torch
import torch.nn as nn

from data import TripletDataset, TripletLoader, make_signatures
from model import Embedder

CONF = {
    "train_len": 1500, "batch_size": 48, "epochs": 5, "margin": 0.3,
    "lr": 2e-3, "out": "triplet_run", "seed": 8,
}


@torch.no_grad()
def recall_at(model, X, y, ks, device):
    model.eval()
    e = torch.cat([model(c.to(device)) for c in torch.from_numpy(X).split(64)])
    d = torch.cdist(e, e)
    d.fill_diagonal_(float("inf"))
    order = d.argsort(1).cpu()
    same = torch.as_tensor(y)[order] == torch.as_tensor(y)[:, None]
    return {k: same[:, :k].any(1).float().mean().item() for k in ks}


def main(conf):
    torch.manual_seed(conf["seed"])
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    X, y = make_signatures()
    train = y < 28
    loader = TripletLoader(TripletDataset(X[train], y[train], conf["train_len"], conf["seed"]), conf["batch_size"])
    Xt, yt = X[~train], y[~train]

    model = Embedder().to(device)
    criterion = nn.TripletMarginLoss(margin=conf["margin"])
    optimizer = torch.optim.Adam(model.parameters(), lr=conf["lr"])
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.8)
    os.makedirs(conf["out"], exist_ok=True)
    print("untrained:", recall_at(model, Xt, yt, (1, 5), device))
    records = []
    for epoch in range(1, conf["epochs"] + 1):
        model.train()
        t0, loss_sum, active, n = time.time(), 0.0, 0, 0
        for anchor, pos, neg in loader:
            anchor, pos, neg = anchor.to(device), pos.to(device), neg.to(device)
            ea, ep, en = model(anchor), model(pos), model(neg)
            loss = criterion(ea, ep, en)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            with torch.no_grad():
                gap = (ea - ep).norm(dim=1) - (ea - en).norm(dim=1) + conf["margin"]
                active += (gap > 0).sum().item()
            n += len(anchor)
            loss_sum += loss.item() * len(anchor)
        scheduler.step()
        r = recall_at(model, Xt, yt, (1, 5), device)
        records.append({"epoch": epoch, "loss": loss_sum / n, "active": active / n, **{f"R@{k}": v for k, v in r.items()}})
        print(f"epoch {epoch}: loss {loss_sum / n:.4f} active {active / n:.3f} R@1 {r[1]:.4f} R@5 {r[5]:.4f} ({time.time() - t0:.1f}s)")
        with open(os.path.join(conf["out"], "log.json"), "w") as fh:
            json.dump(records, fh, indent=2)
        torch.save(model.state_dict(), os.path.join(conf["out"], f"epoch{epoch}.pt"))
    best = max(records, key=lambda r: r["R@1"])
    model.load_state_dict(torch.load(os.path.join(conf["out"], f"epoch{best['epoch']}.pt"), map_location=device))
    print("best epoch", best["epoch"], recall_at(model, Xt, yt, (1, 5, 10), device))


if __name__ == "__main__":
    main(CONF)
