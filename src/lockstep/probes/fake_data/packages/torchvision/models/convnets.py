"""Networks of `features` and a `classifier`: real widths where the two meet, and at the end."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from .weights import model

INSIDE = 64
"""Width of what no script looks at."""


class _ConvNet(nn.Module):
    """Features, pooled to `grid` x `grid`, and a classifier."""

    def __init__(self, features: nn.Module, grid: int, classifier: nn.Module) -> None:
        super().__init__()
        self.features, self.classifier = features, classifier
        self.avgpool = nn.AdaptiveAvgPool2d(grid)

    def forward(self, x: Tensor) -> Tensor:
        """A score for each class."""
        return self.classifier(torch.flatten(self.avgpool(self.features(x)), 1))


def _vgg(
    convolutions: tuple[int, ...], norm: bool, num_classes: int = 1000, dropout: float = 0.5
) -> nn.Module:
    layers: list[nn.Module] = []
    inputs = 3
    for stage, count in enumerate(convolutions):
        for number in range(count):
            last = stage == 4 and number == count - 1
            outputs = 512 if last else min(8 << stage, INSIDE)
            layers.append(nn.Conv2d(inputs, outputs, 3, padding=1))
            layers += [nn.BatchNorm2d(outputs)] * norm
            layers.append(nn.ReLU(inplace=True))
            inputs = outputs
        layers.append(nn.MaxPool2d(2))
    classifier = nn.Sequential(
        nn.Linear(512 * 7 * 7, INSIDE),
        nn.ReLU(inplace=True),
        nn.Dropout(dropout),
        nn.Linear(INSIDE, 4096),
        nn.ReLU(inplace=True),
        nn.Dropout(dropout),
        nn.Linear(4096, num_classes),
    )
    return _ConvNet(nn.Sequential(*layers), 7, classifier)


@model
def vgg11(**config: Any) -> nn.Module:
    """11 layers (Simonyan and Zisserman 2014)."""
    return _vgg((1, 1, 2, 2, 2), False, **config)


@model
def vgg11_bn(**config: Any) -> nn.Module:
    """The same with batch norm."""
    return _vgg((1, 1, 2, 2, 2), True, **config)


@model
def vgg16(**config: Any) -> nn.Module:
    """16 layers."""
    return _vgg((2, 2, 3, 3, 3), False, **config)


@model
def vgg16_bn(**config: Any) -> nn.Module:
    """The same with batch norm."""
    return _vgg((2, 2, 3, 3, 3), True, **config)


@model
def vgg19(**config: Any) -> nn.Module:
    """19 layers."""
    return _vgg((2, 2, 4, 4, 4), False, **config)


@model
def alexnet(num_classes: int = 1000, dropout: float = 0.5) -> nn.Module:
    """Five convolutions (Krizhevsky 2014)."""
    features = nn.Sequential(
        nn.Conv2d(3, 64, 11, 4, 2),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(3, 2),
        nn.Conv2d(64, INSIDE, 5, padding=2),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(3, 2),
        nn.Conv2d(INSIDE, INSIDE, 3, padding=1),
        nn.ReLU(inplace=True),
        nn.Conv2d(INSIDE, INSIDE, 3, padding=1),
        nn.ReLU(inplace=True),
        nn.Conv2d(INSIDE, 256, 3, padding=1),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(3, 2),
    )
    classifier = nn.Sequential(
        nn.Dropout(dropout),
        nn.Linear(256 * 6 * 6, INSIDE),
        nn.ReLU(inplace=True),
        nn.Dropout(dropout),
        nn.Linear(INSIDE, 4096),
        nn.ReLU(inplace=True),
        nn.Linear(4096, num_classes),
    )
    return _ConvNet(features, 6, classifier)


def _normed(inputs: int, outputs: int, size: int, stride: int = 1, groups: int = 1) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, size, stride, size // 2, groups=groups, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU6(inplace=True),
    )


@model
def mobilenet_v2(num_classes: int = 1000, dropout: float = 0.2) -> nn.Module:
    """Convolutions of one channel each, between those of one pixel each (Sandler et al. 2018)."""
    widths = (32, 16, 24, 32, 64, 96)
    features = [_normed(3, 32, 3, 2)]
    for number, (inputs, outputs) in enumerate(zip(widths, (*widths[1:], 320), strict=True)):
        stride = 2 if number in (1, 2, 3, 5) else 1
        features += [_normed(inputs, inputs, 3, stride, inputs), _normed(inputs, outputs, 1)]
    features.append(_normed(320, 1280, 1))
    head = nn.Sequential(nn.Dropout(dropout), nn.Linear(1280, num_classes))
    return _ConvNet(nn.Sequential(*features), 1, head)


class _Dense(nn.Module):
    """What comes in, and what is found in it."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.found = _normed(inputs, outputs - inputs, 3)

    def forward(self, x: Tensor) -> Tensor:
        """Both."""
        return torch.cat([x, self.found(x)], 1)


@model
def densenet121(num_classes: int = 1000, **config: Any) -> nn.Module:
    """Layers that see all before them (Huang et al. 2016)."""
    features: list[nn.Module] = [_normed(3, 64, 7, 2), nn.MaxPool2d(3, 2, 1)]
    for inputs, outputs in ((64, 128), (64, 128), (64, 128)):
        features += [_Dense(inputs, outputs), _normed(outputs, 64, 1), nn.AvgPool2d(2)]
    features += [_Dense(64, 128), _normed(128, 1024, 1)]
    return _ConvNet(nn.Sequential(*features), 1, nn.Linear(1024, num_classes))
