"""The same bar."""

from . import tqdm, trange

__all__ = ["tqdm", "trange"]
