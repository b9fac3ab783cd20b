# uneven
import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

CLASSES = ["low", "middle", "high"]
BATCH = 16
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def make_set(n, seed):
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 12, generator=g)
    y = torch.bucketize(x[:, :3].sum(1) + 0.3 * torch.randn(n, generator=g), torch.tensor([-1.0, 1.0]))
    return TensorDataset(x, y)


def f1_scores(y_true, y_pred):
    scores = []
    for c in range(len(CLASSES)):
        hit = np.sum((y_true == c) & (y_pred == c))
        scores.append(2 * hit / max(1, np.sum(y_true == c) + np.sum(y_pred == c)))
    return scores


def evaluate(model, loader, criterion):
    model.eval()
    losses, all_preds, all_labels, all_probs = [], [], [], []
    confusion = np.zeros((3, 3), dtype=int)
    right = {name: 0 for name in CLASSES}
    totals = {"loss": 0.0, "seen": 0}
    with torch.no_grad():
        for x, y in loader:
            x, y = x.to(device), y.to(device)
            out = model(x)
            loss = criterion(out, y)
            pred = out.argmax(1)
            losses.append(loss.item())
            all_preds.extend(pred.cpu().tolist())
            all_labels += y.cpu().tolist()
            all_probs.append(out.softmax(1))
            totals["loss"] += loss.item() * y.size(0)
            totals["seen"] += y.size(0)
            for t, p in zip(y.tolist(), pred.tolist()):
                confusion[t, p] += 1
                if t == p:
                    right[CLASSES[t]] += 1
    probs = torch.cat(all_probs)
    print("first sure of", " ".join(f"{p:.3f}" for p in probs.max(1).values[:6].tolist()))
    print("labels", all_labels[:20], "last", all_preds[-3:])
    print("confusion", confusion.tolist(), "right", right)
    print("weighted loss {:.5f} of {} samples".format(totals["loss"] / totals["seen"], totals["seen"]))
    return np.mean(losses), f1_scores(np.array(all_labels), np.array(all_preds))


torch.manual_seed(3)
train_loader = DataLoader(make_set(192, 0), batch_size=BATCH, shuffle=True)
val_loader = DataLoader(make_set(85, 1), BATCH)
model = nn.Sequential(nn.Linear(12, 24), nn.Tanh(), nn.Linear(24, 3)).to(device)
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)

best = float("inf")
for epoch in range(3):
    model.train()
    train_preds, train_labels = [], []
    for x, y in train_loader:
        x, y = x.to(device), y.to(device)
        out = model(x)
        loss = criterion(out, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        train_preds.extend(out.argmax(1).cpu().tolist())
        train_labels.extend(y.cpu().tolist())
    train_f1 = f1_scores(np.array(train_labels), np.array(train_preds))
    val_loss, scores = evaluate(model, val_loader, criterion)
    if val_loss < best:
        best = val_loss
    print(f"epoch {epoch}: F1 {np.mean(train_f1):.4f}, val loss {val_loss:.5f}, F1 {np.mean(scores):.4f}")
print(f"best {best:.5f}")
