import os
import random

import numpy as np
import torch


def seed_everything(seed):
    random.seed(seed)
    os.environ["PYTHONHASHSEED"] = str(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
    torch.cuda.manual_seed(seed)
    torch.backends.cudnn.deterministic = True


def print_confusion(mat, names):
    w = max(map(len, names)) + 1
    print(" " * w + " ".join(n[:6].rjust(6) for n in names))
    for n, row in zip(names, mat.tolist()):
        print(n.rjust(w) + " ".join(str(v).rjust(6) for v in row))


class EarlyStopper:
    def __init__(self, patience, min_delta=0.0):
        self.patience, self.min_delta = patience, min_delta
        self.best, self.count = -float("inf"), 0

    def __call__(self, value):
        """True when training should stop."""
        if value > self.best + self.min_delta:
            self.best, self.count = value, 0
        else:
            self.count += 1
        return self.count >= self.patience
