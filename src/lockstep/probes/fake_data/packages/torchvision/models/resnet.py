"""Residual networks (He et al. 2015) whose blocks are narrow between their ends."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from .weights import model

NARROW = 8
"""The part of the real width that the inside of a block has."""


class _Block(nn.Module):
    expansion = 1

    def _shortcut(self, inputs: int, outputs: int, stride: int, downsample: Any) -> None:
        if downsample is None and (stride != 1 or inputs != outputs):
            downsample = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)
            )
        self.relu, self.downsample = nn.ReLU(inplace=True), downsample

    def _added(self, x: Tensor, out: Tensor) -> Tensor:
        return self.relu(out + (x if self.downsample is None else self.downsample(x)))


class BasicBlock(_Block):
    """Two convolutions beside a shortcut."""

    def __init__(
        self, inplanes: int, planes: int, stride: int = 1, downsample: Any = None, **kwargs: Any
    ) -> None:
        super().__init__()
        inside = max(planes // NARROW, 1)
        self.conv1 = nn.Conv2d(inplanes, inside, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(inside)
        self.conv2 = nn.Conv2d(inside, planes, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(planes)
        self._shortcut(inplanes, planes, stride, downsample)

    def forward(self, x: Tensor) -> Tensor:
        """Add what they find."""
        out = torch.relu(self.bn1(self.conv1(x)))
        return self._added(x, self.bn2(self.conv2(out)))


class Bottleneck(_Block):
    """Three convolutions beside a shortcut."""

    expansion = 4

    def __init__(
        self, inplanes: int, planes: int, stride: int = 1, downsample: Any = None, **kwargs: Any
    ) -> None:
        super().__init__()
        inside, outputs = max(planes // NARROW, 1), planes * self.expansion
        self.conv1 = nn.Conv2d(inplanes, inside, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(inside)
        self.conv2 = nn.Conv2d(inside, inside, 3, stride, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(inside)
        self.conv3 = nn.Conv2d(inside, outputs, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(outputs)
        self._shortcut(inplanes, outputs, stride, downsample)

    def forward(self, x: Tensor) -> Tensor:
        """Add what they find."""
        out = torch.relu(self.bn1(self.conv1(x)))
        out = torch.relu(self.bn2(self.conv2(out)))
        return self._added(x, self.bn3(self.conv3(out)))


class ResNet(nn.Module):
    """A stem, four stages and a linear layer."""

    def __init__(
        self, block: type[_Block], layers: list[int], num_classes: int = 1000, **kwargs: Any
    ) -> None:
        super().__init__()
        self.inplanes = 64
        self.conv1 = nn.Conv2d(3, 64, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, 2, 1)
        self.layer1 = self._make_layer(block, 64, layers[0])
        self.layer2 = self._make_layer(block, 128, layers[1], stride=2)
        self.layer3 = self._make_layer(block, 256, layers[2], stride=2)
        self.layer4 = self._make_layer(block, 512, layers[3], stride=2)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(512 * block.expansion, num_classes)

    def _make_layer(self, block: Any, planes: int, blocks: int, stride: int = 1) -> nn.Sequential:
        stage = []
        for number in range(blocks):
            stage.append(block(self.inplanes, planes, stride if number == 0 else 1))
            self.inplanes = planes * block.expansion
        return nn.Sequential(*stage)

    def forward(self, x: Tensor) -> Tensor:
        """A score for each class."""
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(torch.flatten(self.avgpool(x), 1))


@model
def resnet18(**config: Any) -> nn.Module:
    """18 layers."""
    return ResNet(BasicBlock, [2, 2, 2, 2], **config)


@model
def resnet34(**config: Any) -> nn.Module:
    """34 layers."""
    return ResNet(BasicBlock, [3, 4, 6, 3], **config)


@model
def resnet50(**config: Any) -> nn.Module:
    """50 layers."""
    return ResNet(Bottleneck, [3, 4, 6, 3], **config)


@model
def resnet101(**config: Any) -> nn.Module:
    """101 layers."""
    return ResNet(Bottleneck, [3, 4, 23, 3], **config)


@model
def resnet152(**config: Any) -> nn.Module:
    """152 layers."""
    return ResNet(Bottleneck, [3, 8, 36, 3], **config)
