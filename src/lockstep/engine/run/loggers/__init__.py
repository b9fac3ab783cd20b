"""Where the lines of metrics.jsonl go besides: one file for each choice of --loggers.

A file in this folder defines `LOGGER`, and that is all it takes to be found.
"""

from importlib import import_module
from pkgutil import iter_modules

from lockstep.engine.run.loggers.choice import Logger

_FOUND: list[Logger] = [
    module.LOGGER
    for info in iter_modules(__path__)
    if hasattr(module := import_module(f"{__name__}.{info.name}"), "LOGGER")
]
LOGGERS = {logger.name: logger for logger in _FOUND}
"""Every choice by its name."""

__all__ = ["LOGGERS", "Logger"]
