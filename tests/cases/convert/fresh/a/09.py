"""beta-VAE on small sprites.  Usage: python 09.py [epochs]"""
import os
import sys
from types import SimpleNamespace

import numpy as np
import torch
from torch import nn, optim
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset, random_split

hps = SimpleNamespace(
    z=6, hidden=128, side=14, bs=100, lr=2e-3,
    epochs=int(sys.argv[1]) if len(sys.argv) > 1 else 8,
    beta_max=1.0, beta_warm=60,      # KL warm-up, in optimizer steps
    n=1500, seed=17,
)
torch.manual_seed(hps.seed)
np.random.seed(hps.seed)
cuda = torch.cuda.is_available()
device = torch.device("cuda" if cuda else "cpu")


def make_sprites(n, side):
    """A square whose position, size and contrast are the true factors."""
    factors = np.stack([
        np.random.uniform(3, side - 4, n), np.random.uniform(3, side - 4, n),
        np.random.uniform(1.2, 3.2, n), np.random.uniform(.5, 1, n)], 1).astype(np.float32)
    g = np.arange(side, dtype=np.float32)
    dy = np.abs(g[None, :, None] - factors[:, 0, None, None])
    dx = np.abs(g[None, None, :] - factors[:, 1, None, None])
    soft = 1 / (1 + np.exp(4 * (np.maximum(dy, dx) - factors[:, 2, None, None])))
    return torch.from_numpy(soft * factors[:, 3, None, None]), torch.from_numpy(factors)


class VAE(nn.Module):
    def __init__(self, d, h, z):
        super().__init__()
        self.fc1 = nn.Linear(d, h)
        self.fc21 = nn.Linear(h, z)
        self.fc22 = nn.Linear(h, z)
        self.fc3 = nn.Linear(z, h)
        self.fc4 = nn.Linear(h, d)

    def encode(self, x):
        h1 = F.relu(self.fc1(x))
        return self.fc21(h1), self.fc22(h1)

    def reparameterize(self, mu, logvar):
        std = torch.exp(0.5 * logvar)
        return mu + torch.randn_like(std) * std

    def decode(self, z):
        return self.fc4(F.relu(self.fc3(z)))

    def forward(self, x):
        mu, logvar = self.encode(x.flatten(1))
        return self.decode(self.reparameterize(mu, logvar)), mu, logvar


def loss_function(logits, x, mu, logvar, beta):
    bce = F.binary_cross_entropy_with_logits(logits, x.flatten(1), reduction="sum")
    kld = -0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp())
    return (bce + beta * kld) / len(x), bce.item(), kld.item()


images, factors = make_sprites(hps.n, hps.side)
full = TensorDataset(images, factors)
train_set, test_set = random_split(full, [hps.n - 250, 250], generator=torch.Generator().manual_seed(0))
kw = {"num_workers": 1, "pin_memory": True} if cuda else {}
train_loader = DataLoader(train_set, batch_size=hps.bs, shuffle=True, **kw)
test_loader = DataLoader(test_set, batch_size=hps.bs, shuffle=False, **kw)

model = VAE(hps.side ** 2, hps.hidden, hps.z).to(device)
optimizer = optim.Adam(model.parameters(), lr=hps.lr)
os.makedirs("vae_out", exist_ok=True)
global_step = 0


def train(epoch):
    global global_step
    model.train()
    s_bce = s_kld = 0.0
    for data, _ in train_loader:
        data = data.to(device)
        beta = hps.beta_max * min(1.0, global_step / hps.beta_warm)
        optimizer.zero_grad()
        recon, mu, logvar = model(data)
        loss, bce, kld = loss_function(recon, data, mu, logvar, beta)
        loss.backward()
        optimizer.step()
        s_bce += bce
        s_kld += kld
        global_step += 1
    n = len(train_loader.dataset)
    print("====> Epoch: {} BCE: {:.3f} KLD: {:.3f} beta: {:.2f}".format(epoch, s_bce / n, s_kld / n, beta))


def test(epoch):
    model.eval()
    total, mus, ks, fs = 0.0, [], torch.zeros(hps.z), []
    with torch.no_grad():
        for i, (data, f) in enumerate(test_loader):
            data = data.to(device)
            recon, mu, logvar = model(data)
            total += loss_function(recon, data, mu, logvar, hps.beta_max)[0].item() * len(data)
            ks += (-0.5 * (1 + logvar - mu ** 2 - logvar.exp())).sum(0).cpu()
            mus.append(mu.cpu())
            fs.append(f)
            if i == 0:
                pair = torch.cat([data[:8].flatten(1), torch.sigmoid(recon[:8])]).view(2, 8, hps.side, hps.side)
                np.save("vae_out/recon_%02d.npy" % epoch, pair.cpu().numpy())
    total /= len(test_loader.dataset)
    active = (ks / len(test_loader.dataset) > 0.05).sum().item()
    mu, f = torch.cat(mus).double(), torch.cat(fs).double()
    # how well a linear read-out of the code predicts the factors (R2)
    A = torch.cat([mu, torch.ones(len(mu), 1, dtype=torch.double)], 1)
    w = torch.linalg.lstsq(A, f).solution
    r2 = 1 - ((A @ w - f) ** 2).sum(0) / ((f - f.mean(0)) ** 2).sum(0)
    print("====> Test set loss: {:.4f}  active units {}/{}  R2 of factors {}".format(
        total, active, hps.z, [round(v, 2) for v in r2.tolist()]))
    return total


best = float("inf")
for epoch in range(1, hps.epochs + 1):
    train(epoch)
    t = test(epoch)
    if t < best:
        best = t
        torch.save(model.state_dict(), "vae_out/best.pth")
    with torch.no_grad():
        sample = torch.sigmoid(model.decode(torch.randn(16, hps.z, device=device))).cpu()
        np.save("vae_out/sample_%02d.npy" % epoch, sample.view(16, hps.side, hps.side).numpy())
print("best test ELBO loss", best)
