"""Ways to make gradients smaller before they travel: one file for each choice of --wire.

A file in this folder defines `COMPRESSION`, and that is all it takes to be found.
"""

from importlib import import_module
from pkgutil import iter_modules

from lockstep.engine.exchange.compression.choice import Compression

_FOUND: list[Compression] = [
    module.COMPRESSION
    for info in iter_modules(__path__)
    if hasattr(module := import_module(f"{__name__}.{info.name}"), "COMPRESSION")
]
COMPRESSIONS = {c.name: c for c in sorted(_FOUND, key=lambda c: (c.changes_gradients, c.name))}
"""Every choice by its name; gradients as they are come first."""

__all__ = ["COMPRESSIONS", "Compression"]
