"""Train on every GPU you have. Keep the training of one.

`lockstep.train` trains a recipe and returns the run. `GlobalBatches`, `ExactReduce` and the modules
work alone in a plain PyTorch loop. Every name is loaded at its first use, so that `import lockstep`
imports no torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lockstep import augment as augment
    from lockstep import data as data
    from lockstep import errors as errors
    from lockstep import layers as layers
    from lockstep import metrics as metrics
    from lockstep import models as models
    from lockstep import noise as noise
    from lockstep import optimizers as optimizers
    from lockstep import recipes as recipes
    from lockstep import rules as rules
    from lockstep import schedules as schedules
    from lockstep import testing as testing
    from lockstep.data.dataset import Data as Data
    from lockstep.data.dataset import Tensors as Tensors
    from lockstep.engine.exchange.buffer_drift import buffer_drift as buffer_drift
    from lockstep.engine.exchange.reduce import ExactReduce as ExactReduce
    from lockstep.engine.recipe.recipe import Recipe as Recipe
    from lockstep.engine.sampler import GlobalBatches as GlobalBatches
    from lockstep.errors import LockstepError as LockstepError
    from lockstep.training import Loop as Loop
    from lockstep.training import Run as Run
    from lockstep.training import train as train

# The names above once more; a test compares the two lists.
_MODULES = (
    *("augment", "data", "errors", "layers", "metrics", "models", "noise", "optimizers", "recipes"),
    *("rules", "schedules", "testing"),
)
_HOMES = {
    "Data": "lockstep.data.dataset",
    "ExactReduce": "lockstep.engine.exchange.reduce",
    "GlobalBatches": "lockstep.engine.sampler",
    "LockstepError": "lockstep.errors",
    "Loop": "lockstep.training",
    "Recipe": "lockstep.engine.recipe.recipe",
    "Run": "lockstep.training",
    "Tensors": "lockstep.data.dataset",
    "buffer_drift": "lockstep.engine.exchange.buffer_drift",
    "train": "lockstep.training",
}

__all__ = sorted([*_MODULES, *_HOMES])

# A type checker must not see this function: it would accept any name as Any.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        """Load a public name at its first use."""
        from importlib import import_module

        if name in _MODULES:
            return import_module(f"lockstep.{name}")
        if name not in _HOMES:
            raise AttributeError(f"module 'lockstep' has no attribute {name!r}")
        value = globals()[name] = getattr(import_module(_HOMES[name]), name)
        return value


def __dir__() -> list[str]:
    """Return the public names, for completion."""
    return __all__
