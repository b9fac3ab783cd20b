"""Things that all scripts need."""

import random

import numpy as np
import torch


def seed_all(seed=0):
    """Make runs repeatable."""
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)  # LS20
