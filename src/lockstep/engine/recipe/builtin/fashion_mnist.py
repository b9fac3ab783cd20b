"""Fashion-MNIST with the WideResNet of the workshop."""

from __future__ import annotations

from functools import partial

from torch.optim import SGD

from lockstep import data, models
from lockstep.data import flip, pad_crop
from lockstep.engine.recipe.recipe import Recipe
from lockstep.engine.step.metrics import accuracy, cross_entropy
from lockstep.scaling.rates.schedules import cosine

FASHION_MNIST = Recipe(
    name="fashion-mnist",
    channels_last=True,
    # The model of the workshop.
    model=partial(models.wideresnet, depth=16, width=10, channels=1, dropout=0.1),
    data=data.fashion_mnist,
    augment=(partial(pad_crop, padding=2), flip),
    loss=cross_entropy,
    metrics={"accuracy": accuracy},
    optimizer=partial(SGD, momentum=0.9, nesterov=True, weight_decay=5e-4),
    learning_rate=0.1,
    schedule=cosine,
    warmup=1.0,
    global_batch=512,
    shards=8,
    epochs=15,
    target=0.93,
)
