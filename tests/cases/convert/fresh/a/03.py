# SimCLR on toy glyphs. quick experiment, jonas
import math, time, random
import numpy as np
import torch
from torch import nn
import torch.nn.functional as F
from torch.utils.data import Dataset, DataLoader

cfg = dict(
    seed=3,
    n_train=900,
    n_probe=400,
    size=16,
    batch=100,
    epochs=12,
    lr=4e-3,
    temp=0.2,
    proj_dim=32,
    feat_dim=64,
)

torch.manual_seed(cfg["seed"]); random.seed(cfg["seed"]); np.random.seed(cfg["seed"])
dev = "cuda" if torch.cuda.is_available() else "cpu"

# --- glyphs: each class is a fixed random stroke pattern, shifted & scaled ------
N_CLASS = 8
_rs = np.random.RandomState(99)
PROTOS = []
for _ in range(N_CLASS):
    g = np.zeros((10, 10), np.float32)
    r, c = _rs.randint(2, 8, 2)
    for _ in range(22):
        g[r, c] = 1
        dr, dc = [(0, 1), (1, 0), (0, -1), (-1, 0)][_rs.randint(4)]
        r, c = int(np.clip(r + dr, 0, 9)), int(np.clip(c + dc, 0, 9))
    PROTOS.append(g)


def render(label, rs):
    im = np.zeros((cfg["size"], cfg["size"]), np.float32)
    dy, dx = rs.randint(0, cfg["size"] - 10 + 1, 2)
    im[dy:dy + 10, dx:dx + 10] = PROTOS[label] * rs.uniform(0.6, 1.4)
    return im


def augment(im):
    im = np.roll(im, (random.randint(-2, 2), random.randint(-2, 2)), (0, 1))
    im = im * random.uniform(0.7, 1.3) + random.uniform(-.1, .1)
    im = im + np.random.randn(*im.shape).astype(np.float32) * 0.15
    k = random.randint(0, cfg["size"] - 4)
    if random.random() < .5:
        im[k:k + 3] = 0
    return torch.from_numpy(np.ascontiguousarray(im, dtype=np.float32))[None]


class Pairs(Dataset):
    def __init__(self, n, seed):
        rs = np.random.RandomState(seed)
        self.y = rs.randint(0, N_CLASS, n)
        self.x = [render(l, rs) for l in self.y]

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return augment(self.x[i]), augment(self.x[i])


enc = nn.Sequential(
    nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
    nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
    nn.Conv2d(32, cfg["feat_dim"], 3, padding=1), nn.ReLU(),
    nn.AdaptiveAvgPool2d(1), nn.Flatten(),
).to(dev)
proj = nn.Sequential(nn.Linear(cfg["feat_dim"], 64), nn.ReLU(), nn.Linear(64, cfg["proj_dim"])).to(dev)


def nt_xent(z1, z2, t):
    n = z1.shape[0]
    z = F.normalize(torch.cat([z1, z2]), dim=1)
    sim = z @ z.t() / t
    sim.fill_diagonal_(-1e4)
    target = torch.cat([torch.arange(n, 2 * n), torch.arange(0, n)]).to(z.device)
    acc = (sim.argmax(1) == target).float().mean()
    return F.cross_entropy(sim, target), acc


train = Pairs(cfg["n_train"], 1)
loader = DataLoader(train, batch_size=cfg["batch"], shuffle=True, drop_last=True)
params = list(enc.parameters()) + list(proj.parameters())
opt = torch.optim.Adam(params, lr=cfg["lr"], weight_decay=1e-5)
sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, T_max=cfg["epochs"] * len(loader))

for ep in range(cfg["epochs"]):
    t0 = time.time(); tot = 0; tot_acc = 0
    enc.train(); proj.train()
    for a, b in loader:
        a, b = a.to(dev), b.to(dev)
        loss, acc = nt_xent(proj(enc(a)), proj(enc(b)), cfg["temp"])
        opt.zero_grad()
        loss.backward()
        opt.step()
        sched.step()
        tot += loss.item(); tot_acc += acc.item()
    print(f"ep {ep}  nt-xent {tot/len(loader):.4f}  (chance {math.log(2*cfg['batch']-1):.2f})  "
          f"instance acc {tot_acc/len(loader):.3f}  {time.time()-t0:.1f}s")

# --- kNN probe -------------------------------------------------------------------
enc.eval()


@torch.no_grad()
def embed(ds):
    x = torch.stack([torch.from_numpy(v)[None] for v in ds.x]).to(dev)
    return F.normalize(enc(x), dim=1).cpu(), torch.as_tensor(ds.y)


bank, bank_y = embed(train)
q, q_y = embed(Pairs(cfg["n_probe"], 2))
nn_idx = (q @ bank.t()).topk(7, dim=1).indices
votes = F.one_hot(bank_y[nn_idx], N_CLASS).sum(1).argmax(1)
print("7-NN accuracy of the frozen features: %.3f" % (votes == q_y).float().mean().item())
torch.save({"enc": enc.state_dict(), "cfg": cfg}, "simclr_enc.pth")
