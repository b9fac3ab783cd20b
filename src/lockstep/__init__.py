"""Train on every GPU you have. Keep the training of one.

Every public name, loaded when it is first used: importing lockstep does nothing else.
"""

from __future__ import annotations

import importlib
from typing import Any

_NAMES = {
    "ExactReduce": "lockstep.engine.reduce",
    "GlobalBatches": "lockstep.engine.sampler",
    "Recipe": "lockstep.engine.recipe",
    "Data": "lockstep.data.dataset",
    "Tensors": "lockstep.data.dataset",
    "Windows": "lockstep.data.dataset",
    "SampleKeys": "lockstep.data.keyed",
    "pad_crop": "lockstep.data.augment",
    "flip": "lockstep.data.augment",
    "flip_alternating": "lockstep.data.augment",
    "cutout": "lockstep.data.augment",
    "Shards": "lockstep.scaling.shards",
    "per_shard": "lockstep.scaling.shards",
    "constant": "lockstep.scaling.schedule",
    "cosine": "lockstep.scaling.schedule",
    "linear": "lockstep.scaling.schedule",
    "triangle": "lockstep.scaling.schedule",
    "step": "lockstep.scaling.schedule",
    "Muon": "lockstep.scaling.muon",
    "LARS": "lockstep.scaling.lars",
    "LARC": "lockstep.scaling.larc",
    "LAMB": "lockstep.scaling.lamb",
    "NovoGrad": "lockstep.scaling.novograd",
    "warmed": "lockstep.scaling.schedule",
    "polynomial": "lockstep.scaling.schedule",
    "one_cycle": "lockstep.scaling.schedule",
    "followed": "lockstep.scaling.schedule",
    "AdaScale": "lockstep.scaling.adascale",
    "Growth": "lockstep.scaling.growth",
    "NoiseScale": "lockstep.scaling.noise",
    "buffer_drift": "lockstep.engine.drift",
    "ReplicaNoise": "lockstep.engine.noise",
    "ShardNoise": "lockstep.scaling.noise",
    "StepNoise": "lockstep.scaling.noise",
    "adam_diagonal": "lockstep.scaling.noise",
    "linear_rule": "lockstep.scaling.rules",
    "sqrt_rule": "lockstep.scaling.rules",
    "legw_rule": "lockstep.scaling.rules",
    "adascale_gain": "lockstep.scaling.rules",
    "adam_sqrt_rule": "lockstep.scaling.rules",
    "accuracy": "lockstep.engine.metrics",
    "cross_entropy": "lockstep.engine.metrics",
    "squared_error": "lockstep.engine.metrics",
    "bits_per_byte": "lockstep.engine.metrics",
    "LockstepError": "lockstep.errors",
}

__all__ = sorted(_NAMES)


def __getattr__(name: str) -> Any:
    """Load a public name when it is first used."""
    if name not in _NAMES:
        raise AttributeError(f"lockstep has no {name!r}")
    value = getattr(importlib.import_module(_NAMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """The public names, for completion."""
    return __all__
