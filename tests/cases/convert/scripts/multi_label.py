"""Several labels per sample; F1 from all the predictions of a validation."""
import argparse
import os

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

LABELS = ["round", "red", "heavy", "smooth", "sweet", "cheap"]


class FruitDataset(Dataset):
    def __init__(self, n, split):
        rng = np.random.default_rng({"train": 10, "val": 20}[split])
        mix = np.random.default_rng(0).normal(size=(16, len(LABELS)))
        self.x = rng.normal(size=(n, 16)).astype(np.float32)
        self.y = (self.x @ mix + rng.normal(size=(n, len(LABELS))) > 0.8).astype(np.float32)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return {"features": torch.from_numpy(self.x[i]), "labels": torch.from_numpy(self.y[i])}


def f1_per_label(y_true, y_pred):
    tp = ((y_true == 1) & (y_pred == 1)).sum(0)
    fp = ((y_true == 0) & (y_pred == 1)).sum(0)
    fn = ((y_true == 1) & (y_pred == 0)).sum(0)
    return 2 * tp / np.maximum(2 * tp + fp + fn, 1)


def train_one_epoch(model, loader, loss_fn, optimizer, device):
    model.train()
    epoch_loss = 0
    for batch in loader:
        batch = {k: v.to(device) for k, v in batch.items()}
        logits = model(batch["features"])
        loss = loss_fn(logits, batch["labels"])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        epoch_loss += loss.item()
    return epoch_loss / len(loader)


@torch.inference_mode()
def evaluate(model, loader, device, threshold=0.5):
    model.eval()
    all_preds, all_labels = [], []
    for batch in loader:
        probs = torch.sigmoid(model(batch["features"].to(device)))
        all_preds.extend((probs > threshold).cpu().numpy().astype(int))
        all_labels.append(batch["labels"].numpy())
    y_pred = np.array(all_preds)
    y_true = np.concatenate(all_labels)
    scores = f1_per_label(y_true, y_pred)
    exact = (y_true == y_pred).all(axis=1).mean()
    return scores, exact


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument("--epochs", type=int, default=6)
    p.add_argument("--bs", type=int, default=32)
    p.add_argument("--lr", type=float, default=0.01)
    p.add_argument("--out", default="multi_label")
    return p.parse_args()


def main():
    args = parse_args()
    torch.manual_seed(4)
    device = "cuda" if torch.cuda.is_available() else "cpu"

    train_loader = DataLoader(FruitDataset(640, "train"), batch_size=args.bs, shuffle=True)
    val_loader = DataLoader(FruitDataset(256, "val"), batch_size=args.bs)

    model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, len(LABELS)))
    model.to(device)

    pos_weight = torch.tensor([2.0] * len(LABELS)).to(device)
    loss_fn = nn.BCEWithLogitsLoss(pos_weight=pos_weight)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)

    os.makedirs(args.out, exist_ok=True)
    log = open(os.path.join(args.out, "log.csv"), "w")
    log.write("epoch,loss,macro_f1,exact\n")
    best = 0
    for epoch in range(args.epochs):
        loss = train_one_epoch(model, train_loader, loss_fn, optimizer, device)
        scores, exact = evaluate(model, val_loader, device)
        macro = scores.mean()
        log.write(f"{epoch},{loss:.5f},{macro:.5f},{exact:.5f}\n")
        log.flush()
        print(f"epoch {epoch}: loss {loss:.4f} | macro F1 {macro:.4f} | all six right {exact:.4f}")
        if macro > best:
            best = macro
            torch.save(model.state_dict(), os.path.join(args.out, "best.pt"))
    log.close()
    for name, score in zip(LABELS, scores):
        print(f"  {name:>8s} {score:.3f}")


if __name__ == "__main__":
    main()
