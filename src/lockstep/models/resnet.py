"""ResNet-50 (He et al. 2015) with the stride in the 3x3 convolution, as is usual now."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Bottleneck(nn.Module):
    """1x1, 3x3 and 1x1 convolutions beside a shortcut."""

    def __init__(self, inputs: int, middle: int, stride: int) -> None:
        super().__init__()
        outputs = 4 * middle
        self.conv1 = nn.Conv2d(inputs, middle, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(middle)
        self.conv2 = nn.Conv2d(middle, middle, 3, stride, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(middle)
        self.conv3 = nn.Conv2d(middle, outputs, 1, bias=False)
        self.norm3 = nn.BatchNorm2d(outputs)
        # Each block starts as the identity (Goyal et al. 2017, sec. 5.1): large batches need it.
        nn.init.zeros_(self.norm3.weight)
        self.shortcut: nn.Module = nn.Identity()
        if inputs != outputs or stride != 1:
            projection = nn.Conv2d(inputs, outputs, 1, stride, bias=False)
            self.shortcut = nn.Sequential(projection, nn.BatchNorm2d(outputs))

    def forward(self, x: Tensor) -> Tensor:
        """Add the output of the convolutions to the input."""
        out = torch.relu(self.norm1(self.conv1(x)))
        out = torch.relu(self.norm2(self.conv2(out)))
        return torch.relu(self.shortcut(x) + self.norm3(self.conv3(out)))


def resnet50(classes: int = 1000, channels: int = 3) -> nn.Module:
    """Build a ResNet-50 for images of 224x224.

    >>> sum(p.numel() for p in resnet50().parameters())
    25557032
    """
    stem = nn.Sequential(
        nn.Conv2d(channels, 64, 7, 2, padding=3, bias=False),
        nn.BatchNorm2d(64),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(3, 2, padding=1),
    )
    groups, inputs = [], 64
    for number, (middle, blocks) in enumerate(((64, 3), (128, 4), (256, 6), (512, 3))):
        group = []
        for block in range(blocks):
            stride = 2 if number > 0 and block == 0 else 1
            group.append(Bottleneck(inputs, middle, stride))
            inputs = 4 * middle
        groups.append(nn.Sequential(*group))
    pool = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten())
    return nn.Sequential(stem, *groups, pool, nn.Linear(inputs, classes))
