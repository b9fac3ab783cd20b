"""A straight line through noisy points: the smallest training there is."""

from __future__ import annotations

from torch.optim import SGD

from lockstep import data, models
from lockstep.engine.recipe.recipe import Recipe
from lockstep.engine.step.metrics import squared_error

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
