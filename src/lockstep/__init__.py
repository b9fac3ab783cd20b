"""Train on every GPU you have. Keep the training of one.

Every public name, loaded when it is first used: importing lockstep does nothing else.
"""

from __future__ import annotations

import importlib
from typing import Any

_NAMES = {
    "ExactReduce": "lockstep.engine.exchange.reduce",
    "GlobalBatches": "lockstep.engine.sampler",
    "Recipe": "lockstep.engine.recipe.recipe",
    "Data": "lockstep.data.dataset",
    "Tensors": "lockstep.data.dataset",
    "Windows": "lockstep.data.dataset",
    "SampleKeys": "lockstep.data.keyed",
    "pad_crop": "lockstep.data.augment",
    "flip": "lockstep.data.augment",
    "flip_alternating": "lockstep.data.augment",
    "cutout": "lockstep.data.augment",
    "Shards": "lockstep.layers.shards",
    "per_shard": "lockstep.layers.per_shard",
    "constant": "lockstep.scaling.rates.schedules",
    "cosine": "lockstep.scaling.rates.schedules",
    "linear": "lockstep.scaling.rates.schedules",
    "triangle": "lockstep.scaling.rates.schedules",
    "step": "lockstep.scaling.rates.schedules",
    "Muon": "lockstep.scaling.optimizers.muon",
    "LARS": "lockstep.scaling.optimizers.lars",
    "LARC": "lockstep.scaling.optimizers.larc",
    "LAMB": "lockstep.scaling.optimizers.lamb",
    "NovoGrad": "lockstep.scaling.optimizers.novograd",
    "warmed": "lockstep.scaling.rates.schedules",
    "polynomial": "lockstep.scaling.rates.schedules",
    "one_cycle": "lockstep.scaling.rates.schedules",
    "followed": "lockstep.scaling.rates.schedules",
    "AdaScale": "lockstep.scaling.rates.adascale",
    "Growth": "lockstep.scaling.batch.growth",
    "NoiseScale": "lockstep.scaling.noise",
    "buffer_drift": "lockstep.engine.exchange.buffer_drift",
    "ReplicaNoise": "lockstep.engine.exchange.noise",
    "ShardNoise": "lockstep.scaling.noise",
    "StepNoise": "lockstep.scaling.noise",
    "adam_diagonal": "lockstep.scaling.noise",
    "linear_rule": "lockstep.scaling.rates.rules",
    "sqrt_rule": "lockstep.scaling.rates.rules",
    "legw_rule": "lockstep.scaling.rates.rules",
    "adascale_gain": "lockstep.scaling.rates.rules",
    "adam_sqrt_rule": "lockstep.scaling.rates.rules",
    "accuracy": "lockstep.engine.step.metrics",
    "cross_entropy": "lockstep.engine.step.metrics",
    "squared_error": "lockstep.engine.step.metrics",
    "bits_per_byte": "lockstep.engine.step.metrics",
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
