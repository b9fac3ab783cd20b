"""ResNet-50 on synthetic images, to measure speed."""

from __future__ import annotations

from functools import partial

from torch.optim import SGD

from lockstep import data, models
from lockstep.engine.recipe.recipe import Recipe
from lockstep.engine.step.metrics import accuracy, cross_entropy
from lockstep.scaling.rates.schedules import cosine

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
