"""Windows of a time series, with a little noise."""

import numpy as np
import torch
from torch.utils.data import Dataset

# Which hours are kept is the same everywhere, and is drawn once.
SPLIT = np.random.RandomState(17)


class Windows(Dataset):
    """Past and future of each hour."""

    def __init__(self, path, past, future=24):
        self.values = np.load(path).astype(np.float32)
        self.past, self.future = past, future
        self.starts = SPLIT.permutation(len(self.values) - past - future)
        self.rng = None

    def __len__(self):
        return len(self.starts)

    def __getitem__(self, index):
        if self.rng is None:
            self.rng = np.random.default_rng(torch.initial_seed())
        start = self.starts[index]
        middle = start + self.past
        past = self.values[start:middle]
        past = past + self.rng.normal(0, 0.05, size=past.shape).astype(np.float32)
        return torch.from_numpy(past), torch.from_numpy(self.values[middle : middle + self.future])
