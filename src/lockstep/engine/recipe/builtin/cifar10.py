"""CIFAR-10 with a WideResNet."""

from __future__ import annotations

from functools import partial

from torch.optim import SGD

from lockstep import data, models
from lockstep.data import cutout, flip, pad_crop
from lockstep.engine.recipe.recipe import Recipe
from lockstep.engine.step.metrics import accuracy, cross_entropy
from lockstep.scaling.rates.schedules import cosine

CIFAR10 = Recipe(
    name="cifar10",
    channels_last=True,
    model=partial(models.wideresnet, depth=16, width=4, dropout=0.0),
    data=data.cifar10,
    augment=(partial(pad_crop, padding=4), flip, partial(cutout, size=8)),
    loss=cross_entropy,
    metrics={"accuracy": accuracy},
    optimizer=partial(SGD, momentum=0.9, nesterov=True, weight_decay=5e-4),
    learning_rate=0.2,
    schedule=cosine,
    warmup=2.0,
    global_batch=512,
    shards=8,
    epochs=30,
    target=0.94,
)
