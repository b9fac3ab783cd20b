"""The loggers besides metrics.jsonl: one file for each choice of --loggers.

lockstep finds every file in this folder that defines `LOGGER`.
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
