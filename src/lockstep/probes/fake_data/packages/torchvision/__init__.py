"""A small torchvision, for where it is not installed: synthetic data, plain transforms, models."""

import sys

from . import datasets, models, transforms
from . import grids as utils

__all__ = ["datasets", "models", "transforms", "utils"]
# A file is named for what it holds; scripts know it by this name.
sys.modules[f"{__name__}.utils"] = utils
__version__ = "0.0.0+lockstep"


def set_image_backend(backend: str) -> None:
    """There is one."""


def get_image_backend() -> str:
    """The one that there is."""
    return "PIL"
