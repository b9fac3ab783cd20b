"""Wide residual networks (Zagoruyko & Komodakis 2016), pre-activation, for small images."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Block(nn.Module):
    """Two 3x3 convolutions beside a shortcut."""

    def __init__(self, inputs: int, outputs: int, stride: int, dropout: float) -> None:
        super().__init__()
        self.norm1 = nn.BatchNorm2d(inputs)
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(outputs)
        self.dropout = nn.Dropout(dropout)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        same = inputs == outputs and stride == 1
        self.shortcut = None if same else nn.Conv2d(inputs, outputs, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Add the output of the convolutions to the input."""
        out = torch.relu(self.norm1(x))
        # The projection reads the activated input, as the paper's code does; the identity does not.
        skip = x if self.shortcut is None else self.shortcut(out)
        out = torch.relu(self.norm2(self.conv1(out)))
        return skip + self.conv2(self.dropout(out))


class WideResNet(nn.Module):
    """Three groups of blocks; each after the first halves the image and doubles the channels."""

    def __init__(self, depth: int, width: int, classes: int, channels: int, dropout: float) -> None:
        super().__init__()
        if depth < 10 or (depth - 4) % 6:
            raise ValueError(f"depth {depth} is not 6n + 4: use 10, 16, 22, 28 or 40")
        self.stem = nn.Conv2d(channels, 16, 3, padding=1, bias=False)
        blocks, inputs = [], 16
        for group, outputs in enumerate((16 * width, 32 * width, 64 * width)):
            for number in range((depth - 4) // 6):
                stride = 2 if group > 0 and number == 0 else 1
                blocks.append(Block(inputs, outputs, stride, dropout))
                inputs = outputs
        self.blocks = nn.Sequential(*blocks)
        self.norm = nn.BatchNorm2d(inputs)
        self.head = nn.Linear(inputs, classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x: Tensor) -> Tensor:
        """Return the class scores of images."""
        x = torch.relu(self.norm(self.blocks(self.stem(x))))
        return self.head(x.mean(dim=(2, 3)))


def wideresnet(
    depth: int = 16, width: int = 10, classes: int = 10, channels: int = 3, dropout: float = 0.0
) -> nn.Module:
    """Build the wide residual network WRN-`depth`-`width`; `depth` is 6n + 4.

    >>> sum(p.numel() for p in wideresnet(16, 10, channels=3).parameters())
    17116634
    """
    return WideResNet(depth, width, classes, channels, dropout)
