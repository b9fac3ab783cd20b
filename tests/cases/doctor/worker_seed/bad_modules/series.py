"""Windows of a time series, with a little noise."""

import numpy as np
import torch
from torch.utils.data import Dataset

RNG = np.random.RandomState(17)  # LS21


class Windows(Dataset):
    """Past and future of each hour."""

    def __init__(self, path, past, future=24):
        self.values = np.load(path).astype(np.float32)
        self.past, self.future = past, future

    def __len__(self):
        return len(self.values) - self.past - self.future

    def __getitem__(self, index):
        middle = index + self.past
        past = self.values[index:middle]
        past = past + RNG.normal(0, 0.05, size=past.shape).astype(np.float32)
        return torch.from_numpy(past), torch.from_numpy(self.values[middle : middle + self.future])
