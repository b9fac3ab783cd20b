"""The built-in recipes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from torch.optim import SGD, Adam, AdamW

from lockstep import data, models
from lockstep.data import cutout, flip, flip_alternating, pad_crop
from lockstep.engine.recipe.recipe import Recipe
from lockstep.engine.step.metrics import accuracy, bits_per_byte, cross_entropy, squared_error
from lockstep.scaling.optimizers.lamb import LAMB
from lockstep.scaling.optimizers.larc import LARC
from lockstep.scaling.optimizers.lars import LARS
from lockstep.scaling.optimizers.muon import Muon
from lockstep.scaling.optimizers.novograd import NovoGrad
from lockstep.scaling.rates import schedules
from lockstep.scaling.rates.schedules import cosine, linear

_momentum = partial(SGD, momentum=0.9, nesterov=True, weight_decay=5e-4)

LINE = Recipe(
    name="line",
    model=models.line,
    data=data.line,
    loss=squared_error,
    metrics={"squared_error": squared_error},
    lower_is_better=True,
    optimizer=SGD,
    learning_rate=0.1,
    global_batch=20,
    shards=4,
    epochs=30,
    target=0.1,
)

DIGITS = Recipe(
    name="digits",
    channels_last=True,
    model=partial(models.wideresnet, depth=10, width=3, channels=1, dropout=0.1),
    data=data.digits,
    augment=(partial(pad_crop, padding=1),),
    loss=cross_entropy,
    metrics={"accuracy": accuracy},
    optimizer=_momentum,
    learning_rate=0.2,
    schedule=cosine,
    warmup=1.0,
    global_batch=256,
    shards=4,
    epochs=10,
    target=0.97,
)

FASHION_MNIST = Recipe(
    name="fashion-mnist",
    channels_last=True,
    # The model of the workshop.
    model=partial(models.wideresnet, depth=16, width=10, channels=1, dropout=0.1),
    data=data.fashion_mnist,
    augment=(partial(pad_crop, padding=2), flip),
    loss=cross_entropy,
    metrics={"accuracy": accuracy},
    optimizer=_momentum,
    learning_rate=0.1,
    schedule=cosine,
    warmup=1.0,
    global_batch=512,
    shards=8,
    epochs=15,
    target=0.93,
)

CIFAR10 = Recipe(
    name="cifar10",
    channels_last=True,
    model=partial(models.wideresnet, depth=16, width=4, dropout=0.0),
    data=data.cifar10,
    augment=(partial(pad_crop, padding=4), flip, partial(cutout, size=8)),
    loss=cross_entropy,
    metrics={"accuracy": accuracy},
    optimizer=_momentum,
    learning_rate=0.2,
    schedule=cosine,
    warmup=2.0,
    global_batch=512,
    shards=8,
    epochs=30,
    target=0.94,
)

CIFAR10_FAST = Recipe(
    name="cifar10-fast",
    channels_last=True,
    precision="bf16",
    model=models.quicknet,
    data=data.cifar10,
    augment=(partial(pad_crop, padding=2, mode="reflect"), flip_alternating),
    loss=partial(cross_entropy, smoothing=0.2),
    metrics={"accuracy": accuracy},
    optimizer=partial(Muon, rest_weight_decay=2.4e-3),
    learning_rate=0.24,
    schedule=linear,
    # Divides the 50,000 images, so that all steps have one shape.
    global_batch=2000,
    shards=4,
    epochs=10,
    target=0.94,
)

STDLIB = Recipe(
    name="stdlib",
    model=partial(models.gpt, layers=4, width=128, length=128, dropout=0.1),
    data=partial(data.stdlib, length=128, megabytes=2.0),
    loss=cross_entropy,
    metrics={"bits_per_byte": bits_per_byte},
    lower_is_better=True,
    optimizer=partial(AdamW, betas=(0.9, 0.95), weight_decay=0.1),
    learning_rate=3e-3,
    schedule=partial(cosine, floor=0.1),
    warmup=0.1,
    global_batch=64,
    shards=8,
    epochs=2,
    clip=1.0,
    target=2.7,
)

RESNET50 = Recipe(
    name="resnet50",
    channels_last=True,
    model=models.resnet50,
    data=data.synthetic,
    loss=cross_entropy,
    metrics={"accuracy": accuracy},
    optimizer=partial(SGD, momentum=0.9, nesterov=True, weight_decay=5e-5),
    learning_rate=0.1,
    schedule=cosine,
    global_batch=256,
    shards=8,
    epochs=3,
)

RECIPES = {
    r.name: r for r in (LINE, DIGITS, FASHION_MNIST, CIFAR10, CIFAR10_FAST, STDLIB, RESNET50)
}

KNOWN: dict[str, dict[str, Callable[..., Any]]] = {
    "model": {
        f.__name__: f
        for f in (
            models.line,
            models.mlp,
            models.wideresnet,
            models.quicknet,
            models.resnet50,
            models.gpt,
        )
    },
    "data": {
        "line": data.line,
        "digits": data.digits,
        "fashion-mnist": data.fashion_mnist,
        "cifar10": data.cifar10,
        "stdlib": data.stdlib,
        "synthetic": data.synthetic,
        "folder": data.folder,
    },
    "loss": {f.__name__: f for f in (cross_entropy, squared_error)},
    "metrics": {f.__name__: f for f in (accuracy, bits_per_byte, squared_error)},
    "optimizer": {
        "sgd": SGD,
        "adamw": AdamW,
        "adam": Adam,
        "muon": Muon,
        "lars": LARS,
        "larc": LARC,
        "lamb": LAMB,
        "novograd": NovoGrad,
    },
    "schedule": {
        f.__name__: f
        for f in (
            schedules.constant,
            cosine,
            linear,
            schedules.polynomial,
            schedules.one_cycle,
            schedules.triangle,
            schedules.step,
        )
    },
    "augment": {f.__name__: f for f in (pad_crop, flip, flip_alternating, cutout)},
}
"""What flags may name, by the recipe's field."""
