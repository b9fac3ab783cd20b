"""Losses for depth with holes in the ground truth."""

import torch
import torch.distributed as dist
from torch import nn


class MaskedL1(nn.Module):
    """Mean absolute error where the sensor saw something."""

    def forward(self, scores, target, valid):
        losses = torch.abs(scores - target) * valid
        n_valid = valid.sum() + 1e-6
        return losses.sum() / n_valid  # LS17


def setup():
    dist.init_process_group("nccl")
    return dist.get_rank()
