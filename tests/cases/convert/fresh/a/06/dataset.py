import torch
from torch.utils.data import Dataset

CLASSES = ("background", "ellipse", "bar")


class ToyScenes(Dataset):
    """32x32 noisy scenes with an ellipse and/or a bar; mask has 3 classes."""

    def __init__(self, n, seed, size=32, noise=0.35, train=False):
        g = torch.Generator().manual_seed(seed)
        lin = torch.linspace(-1, 1, size)
        yy, xx = torch.meshgrid(lin, lin, indexing="ij")
        self.images, self.masks = [], []
        for _ in range(n):
            r = lambda lo, hi: lo + (hi - lo) * torch.rand((), generator=g).item()
            mask = torch.zeros(size, size, dtype=torch.long)
            if r(0, 1) < 0.85:
                mask[((yy - r(-.5, .5)) / r(.2, .5)) ** 2 + ((xx - r(-.5, .5)) / r(.2, .5)) ** 2 < 1] = 1
            if r(0, 1) < 0.85:
                a = r(0, 3.14159)
                t = torch.tensor(a)
                d = (xx - r(-.4, .4)) * t.cos() + (yy - r(-.4, .4)) * t.sin()
                mask[d.abs() < r(.06, .14)] = 2
            colour = torch.tensor([0.0, 0.8, -0.8])[mask]
            img = torch.stack([colour, (mask > 0).float() * 0.5])
            self.images.append(img + noise * torch.randn(img.shape, generator=g))
            self.masks.append(mask)
        self.train = train

    def __len__(self):
        return len(self.images)

    def __getitem__(self, i):
        img, mask = self.images[i], self.masks[i]
        if self.train and torch.rand(()) < 0.5:
            img, mask = img.flip(-1), mask.flip(-1)
        return {"image": img, "mask": mask, "id": i}
