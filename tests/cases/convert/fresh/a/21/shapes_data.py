import numpy as np
import torch
from torch.utils.data import Dataset

NAMES = ["square", "disc", "plus"]
IMG, GRID = 32, 8          # stride 4


class DetectionSet(Dataset):
    """1..3 objects per picture. Target is a dict with variable-size tensors, boxes are (cx, cy, w, h) in pixels."""

    def __init__(self, n, seed, augment=False):
        self.rng = np.random.RandomState(seed)
        self.items = [self._draw() for _ in range(n)]
        self.augment = augment

    def _draw(self):
        rs = self.rng
        im = rs.normal(0, 0.2, (1, IMG, IMG)).astype(np.float32)
        yy, xx = np.mgrid[:IMG, :IMG]
        boxes, labels, used = [], [], set()
        for _ in range(rs.randint(1, 4)):
            w = rs.randint(6, 13)
            cx, cy = rs.uniform(w / 2, IMG - w / 2, 2)
            cell = (int(cy * GRID / IMG), int(cx * GRID / IMG))
            if cell in used:
                continue
            used.add(cell)
            c = rs.randint(3)
            dx, dy = np.abs(xx + .5 - cx), np.abs(yy + .5 - cy)
            m = [np.maximum(dx, dy) < w / 2, dx ** 2 + dy ** 2 < w * w / 4,
                 (np.maximum(dx, dy) < w / 2) & (np.minimum(dx, dy) < w / 6)][c]
            im[0][m] = rs.uniform(0.8, 1.5)
            boxes.append([cx, cy, w, w])
            labels.append(c)
        return im, np.asarray(boxes, np.float32), np.asarray(labels)

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        im, boxes, labels = self.items[i]
        im, boxes = im.copy(), boxes.copy()
        if self.augment and np.random.rand() < 0.5:
            im = im[:, :, ::-1].copy()
            boxes[:, 0] = IMG - boxes[:, 0]
        return torch.from_numpy(im), {"boxes": torch.from_numpy(boxes), "labels": torch.from_numpy(labels)}


def collate_fn(batch):
    images, targets = zip(*batch)
    return torch.stack(images), list(targets)
