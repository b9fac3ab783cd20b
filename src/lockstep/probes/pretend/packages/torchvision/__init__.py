"""A small torchvision, for where it is not installed: synthetic data, plain transforms, models."""

from . import datasets, models, transforms, utils

__all__ = ["datasets", "models", "transforms", "utils"]
__version__ = "0.0.0+lockstep"


def set_image_backend(backend: str) -> None:
    """There is one."""


def get_image_backend() -> str:
    """The one that there is."""
    return "PIL"
