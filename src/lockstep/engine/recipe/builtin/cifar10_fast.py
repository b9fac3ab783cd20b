"""CIFAR-10 to 94% in as little time as possible."""

from __future__ import annotations

from functools import partial

from lockstep import data, models
from lockstep.data import flip_alternating, pad_crop
from lockstep.engine.recipe.recipe import Precision, Recipe
from lockstep.engine.step.metrics import accuracy, cross_entropy
from lockstep.scaling.optimizers.muon import Muon
from lockstep.scaling.rates.schedules import linear

CIFAR10_FAST = Recipe(
    name="cifar10-fast",
    channels_last=True,
    precision=Precision.BF16,
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
