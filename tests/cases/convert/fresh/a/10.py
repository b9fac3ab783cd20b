# %% [markdown]
# # House prices, take 3
# exported from my notebook. MLP with entity embeddings, early stopping.

# %%
import copy
import numpy as np
import pandas as pd
import torch
import torch.nn as nn
from torch.utils.data import TensorDataset, DataLoader, Subset

SEED = 0
np.random.seed(SEED)
torch.manual_seed(SEED)

# %% fake the table (the real one lives on the company share)
N = 2000
df = pd.DataFrame({
    "area": np.random.lognormal(4.6, 0.35, N),
    "rooms": np.random.randint(1, 8, N),
    "year": np.random.randint(1900, 2023, N),
    "dist_centre": np.random.exponential(6.0, N),
    "district": np.random.choice(["north", "south", "east", "west", "old_town", "harbour"], N),
    "condition": np.random.choice(["poor", "fair", "good", "new"], N, p=[.1, .3, .4, .2]),
})
district_effect = {"north": 0, "south": -.1, "east": -.2, "west": .1, "old_town": .45, "harbour": .3}
cond_effect = {"poor": -.3, "fair": -.1, "good": .1, "new": .25}
logp = (9.2 + 0.75 * np.log(df.area) + 0.03 * df.rooms - 0.03 * df.dist_centre
        + 0.002 * (df.year - 1960) + df.district.map(district_effect) + df.condition.map(cond_effect)
        + np.where((df.district == "harbour") & (df.year > 2000), .3, 0)
        + np.random.normal(0, .12, N))
df["price"] = np.exp(logp)
df.loc[np.random.rand(N) < 0.05, "area"] = np.nan
df.head()

# %% preprocessing
df["area_missing"] = df.area.isna().astype(float)
df["area"] = np.log(df.area.fillna(df.area.median()))
num_cols = ["area", "rooms", "year", "dist_centre", "area_missing"]
cat_cols = ["district", "condition"]
cats = {c: sorted(df[c].unique()) for c in cat_cols}
X_cat = np.stack([df[c].map({v: i for i, v in enumerate(cats[c])}) for c in cat_cols], 1)

perm = np.random.permutation(N)
tr, va, te = perm[:1400], perm[1400:1700], perm[1700:]
mu, sd = df.loc[tr, num_cols].mean(), df.loc[tr, num_cols].std()
X_num = ((df[num_cols] - mu) / sd).values.astype("float32")
y = np.log(df.price.values).astype("float32")
y_mu, y_sd = y[tr].mean(), y[tr].std()
y = (y - y_mu) / y_sd

ds = TensorDataset(torch.tensor(X_num), torch.tensor(X_cat), torch.tensor(y).unsqueeze(1))
train_dl = DataLoader(Subset(ds, tr), batch_size=50, shuffle=True)
valid_dl = DataLoader(Subset(ds, va), batch_size=50)
test_dl = DataLoader(Subset(ds, te), batch_size=50)

# %% model
class TabNet(nn.Module):     # not *that* TabNet
    def __init__(self, n_num, cardinalities, hidden=(96, 48)):
        super().__init__()
        self.embs = nn.ModuleList([nn.Embedding(c, min(8, (c + 1) // 2)) for c in cardinalities])
        d = n_num + sum(e.embedding_dim for e in self.embs)
        layers = []
        for h in hidden:
            layers += [nn.Linear(d, h), nn.BatchNorm1d(h), nn.SiLU(), nn.Dropout(0.05)]
            d = h
        self.body = nn.Sequential(*layers, nn.Linear(d, 1))

    def forward(self, xn, xc):
        e = [emb(xc[:, i]) for i, emb in enumerate(self.embs)]
        return self.body(torch.cat([xn] + e, 1))


device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
model = TabNet(len(num_cols), [len(cats[c]) for c in cat_cols]).to(device)
loss_fn = nn.HuberLoss(delta=1.0)
opt = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=1e-3)
sched = torch.optim.lr_scheduler.ReduceLROnPlateau(opt, factor=0.3, patience=2)
sum(p.numel() for p in model.parameters())

# %%
def predict(dl):
    model.eval()
    out, ys = [], []
    with torch.no_grad():
        for xn, xc, yb in dl:
            out.append(model(xn.to(device), xc.to(device)).cpu())
            ys.append(yb)
    return torch.cat(out).numpy().ravel(), torch.cat(ys).numpy().ravel()


def r2_score(p, t):
    return 1 - ((p - t) ** 2).sum() / ((t - t.mean()) ** 2).sum()


# %% training
MAX_EPOCHS, PATIENCE = 25, 5
hist = []
best_loss, best_w, wait = np.inf, None, 0
for epoch in range(MAX_EPOCHS):
    model.train()
    batch_losses = []
    for xn, xc, yb in train_dl:
        xn, xc, yb = xn.to(device), xc.to(device), yb.to(device)
        opt.zero_grad()
        loss = loss_fn(model(xn, xc), yb)
        loss.backward()
        opt.step()
        batch_losses.append(loss.item())
    p, t = predict(valid_dl)
    vloss = float(np.mean((p - t) ** 2))
    sched.step(vloss)
    hist.append(dict(epoch=epoch, train=np.mean(batch_losses), valid=vloss, r2=r2_score(p, t), lr=opt.param_groups[0]["lr"]))
    print("epoch {epoch:2d} | train {train:.4f} | valid mse {valid:.4f} | R2 {r2:.4f} | lr {lr:.1e}".format(**hist[-1]))
    if vloss < best_loss - 1e-4:
        best_loss, best_w, wait = vloss, copy.deepcopy(model.state_dict()), 0
    else:
        wait += 1
        if wait >= PATIENCE:
            print("early stop at epoch", epoch)
            break

# %% results
model.load_state_dict(best_w)
p, t = predict(test_dl)
rel = np.abs(np.exp(p * y_sd + y_mu) / np.exp(t * y_sd + y_mu) - 1)
print("test R2 %.4f | median relative error %.2f%%" % (r2_score(p, t), 100 * np.median(rel)))
pd.DataFrame(hist).to_csv("history.csv", index=False)
torch.save(model, "tabnet_full.pt")
