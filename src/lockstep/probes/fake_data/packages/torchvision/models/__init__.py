"""Models with the shapes of torchvision's at their edges, and narrow inside: quick on a CPU.

Stems, stages, features and the last layers have the real widths, because scripts replace them by
layers of their own. There are no pretrained weights: those asked for are random, the same always.
"""

# ruff: noqa: F401

from __future__ import annotations

from typing import Any

from .convnets import alexnet, densenet121, mobilenet_v2, vgg11, vgg11_bn, vgg16, vgg16_bn, vgg19
from .resnet import ResNet, resnet18, resnet34, resnet50, resnet101, resnet152
from .weights import (
    AlexNet_Weights,
    DenseNet121_Weights,
    MobileNet_V2_Weights,
    ResNet18_Weights,
    ResNet34_Weights,
    ResNet50_Weights,
    ResNet101_Weights,
    ResNet152_Weights,
    VGG11_BN_Weights,
    VGG11_Weights,
    VGG16_BN_Weights,
    VGG16_Weights,
    VGG19_Weights,
)


def get_model(name: str, **config: Any) -> Any:
    """By its name."""
    return globals()[name.lower()](**config)
