"""A very small Pillow, for where it is not installed: images that hold an array."""

__version__ = "0.0.0"
