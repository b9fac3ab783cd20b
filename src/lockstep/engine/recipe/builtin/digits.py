"""Handwritten digits of 8x8 pixels, which come with lockstep: trains in seconds on a CPU."""

from __future__ import annotations

from functools import partial

from torch.optim import SGD

from lockstep import data, models
from lockstep.data import pad_crop
from lockstep.engine.recipe.recipe import Recipe
from lockstep.engine.step.metrics import accuracy, cross_entropy
from lockstep.scaling.rates.schedules import cosine

DIGITS = Recipe(
    name="digits",
    channels_last=True,
    model=partial(models.wideresnet, depth=10, width=3, channels=1, dropout=0.1),
    data=data.digits,
    augment=(partial(pad_crop, padding=1),),
    loss=cross_entropy,
    metrics={"accuracy": accuracy},
    optimizer=partial(SGD, momentum=0.9, nesterov=True, weight_decay=5e-4),
    learning_rate=0.2,
    schedule=cosine,
    warmup=1.0,
    global_batch=256,
    shards=4,
    epochs=10,
    target=0.97,
)
