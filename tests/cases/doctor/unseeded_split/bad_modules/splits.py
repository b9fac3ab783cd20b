"""Cuts a table into a part to train on and a part that is held out."""

import numpy as np
import torch
from torch.utils.data import Subset, TensorDataset


def cross_validation_sets(path, held_out):
    table = np.load(path)
    data = TensorDataset(torch.from_numpy(table["x"]), torch.from_numpy(table["y"]))
    order = np.random.permutation(len(data))  # LS04
    cut = int(len(data) * held_out)
    return Subset(data, order[cut:]), Subset(data, order[:cut])
