"""Refuse scripts of other libraries: DDP has nothing to wrap there."""

from __future__ import annotations

from collections.abc import Iterator

from lockstep.convert.refuse import Refusal, Stage
from lockstep.source.training import Training

ORDER = Stage.NO_DDP, 10
_OTHERS = {
    "tensorflow": "TensorFlow",
    "keras": "Keras",
    "jax": "JAX",
    "flax": "JAX",
    "optax": "JAX",
    "mxnet": "MXNet",
    "paddle": "PaddlePaddle",
    "sklearn": "scikit-learn",
    "xgboost": "XGBoost",
    "tinygrad": "tinygrad",
}


def look(training: Training) -> Iterator[Refusal]:
    """Find imports of other libraries, in a program that never imports torch."""
    found = []
    for script in training.project.scripts:
        for scope in script.scopes.values():
            for binding in (b for bindings in scope.bindings.values() for b in bindings):
                head = binding.path.split(".")[0] if binding.kind == "import" else ""
                if head.startswith(("torch", "timm", "fastai", "ignite")):
                    return
                if head in _OTHERS:
                    found.append((script, binding.node, _OTHERS[head]))
    for script, node, library in found[:1]:
        yield Refusal(
            script,
            node,
            f"the script trains with {library}, and DistributedDataParallel wraps PyTorch's "
            "modules",
            f"Use {library}'s own way to train on several devices.",
        )
