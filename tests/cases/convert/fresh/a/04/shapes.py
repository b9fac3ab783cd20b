import numpy as np
import torch
from torch.utils.data import Dataset


class Shapes(Dataset):
    """Discs, squares and crosses in [-1, 1]."""

    def __init__(self, n, size, seed=0):
        rng = np.random.default_rng(seed)
        g = np.arange(size)
        yy, xx = np.meshgrid(g, g, indexing="ij")
        imgs = np.full((n, 1, size, size), -1.0, dtype=np.float32)
        for i in range(n):
            cy, cx = rng.uniform(size * .3, size * .7, 2)
            r = rng.uniform(size * .15, size * .3)
            kind = rng.integers(3)
            if kind == 0:
                m = (yy - cy) ** 2 + (xx - cx) ** 2 < r ** 2
            elif kind == 1:
                m = (abs(yy - cy) < r * .8) & (abs(xx - cx) < r * .8)
            else:
                m = ((abs(yy - cy) < r * .3) & (abs(xx - cx) < r)) | ((abs(xx - cx) < r * .3) & (abs(yy - cy) < r))
            imgs[i, 0][m] = 1.0
        self.imgs = torch.from_numpy(imgs)

    def __len__(self):
        return len(self.imgs)

    def __getitem__(self, i):
        return self.imgs[i]


def save_grid(images, path, cols=4):
    """Writes a PGM, so we depend on nothing."""
    images = ((images.clamp(-1, 1) + 1) * 127.5).to(torch.uint8).cpu().squeeze(1)
    n, h, w = images.shape
    rows = (n + cols - 1) // cols
    grid = torch.zeros(rows * h, cols * w, dtype=torch.uint8)
    for k in range(n):
        r, c = divmod(k, cols)
        grid[r * h:(r + 1) * h, c * w:(c + 1) * w] = images[k]
    with open(path, "wb") as f:
        f.write(f"P5 {grid.shape[1]} {grid.shape[0]} 255\n".encode())
        f.write(grid.numpy().tobytes())
