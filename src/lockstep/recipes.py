"""The built-in recipes, and how to find one by its name."""

from lockstep.engine.recipe.builtin import (
    CIFAR10,
    CIFAR10_FAST,
    DIGITS,
    FASHION_MNIST,
    LINE,
    RECIPES,
    RESNET50,
    STDLIB,
)
from lockstep.engine.recipe.resolve import find_recipe

__all__ = [
    "CIFAR10",
    "CIFAR10_FAST",
    "DIGITS",
    "FASHION_MNIST",
    "LINE",
    "RECIPES",
    "RESNET50",
    "STDLIB",
    "find_recipe",
]
