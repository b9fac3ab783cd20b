import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset


def make_signatures(n_people=40, per=12, dim=40, seed=0):
    """Every person has a latent curve; samples are warped and noisy copies of it."""
    rng = np.random.default_rng(seed)
    t = np.linspace(0, 1, dim)
    X, y = [], []
    for p in range(n_people):
        a, f, ph = rng.normal(size=4), rng.integers(1, 7, 4), rng.uniform(0, 6, 4)
        for _ in range(per):
            w = t ** rng.uniform(0.6, 1.6)
            c = sum(a[k] * np.sin(2 * np.pi * f[k] * w + ph[k]) for k in range(4))
            X.append(c * rng.uniform(0.8, 1.2) + rng.normal(0, 0.8, dim))
            y.append(p)
    return np.asarray(X, dtype=np.float32), np.asarray(y)


class TripletDataset(Dataset):
    """(anchor, positive, negative); the negative is chosen at random from another identity."""

    def __init__(self, X, y, length, seed):
        self.X, self.y, self.length = torch.from_numpy(X), y, length
        self.by_id = {c: np.flatnonzero(y == c) for c in np.unique(y)}
        self.ids = np.array(sorted(self.by_id))
        self.seed, self.epoch = seed, 0

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __len__(self):
        return self.length

    def __getitem__(self, i):
        rng = np.random.default_rng((self.seed, self.epoch, i))
        c = rng.choice(self.ids)
        a, p = rng.choice(self.by_id[c], 2, replace=False)
        other = rng.choice(self.ids[self.ids != c])
        n = rng.choice(self.by_id[other])
        return self.X[a], self.X[p], self.X[n]


class TripletLoader(DataLoader):
    """A DataLoader which tells its dataset about the epoch before each pass."""

    def __init__(self, dataset, batch_size, **kw):
        kw.setdefault("drop_last", True)
        super().__init__(dataset, batch_size=batch_size, **kw)
        self.passes = 0

    def __iter__(self):
        self.dataset.set_epoch(self.passes)
        self.passes += 1
        return super().__iter__()
