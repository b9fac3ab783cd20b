"""A small GPT that learns Python's standard library byte by byte."""

from __future__ import annotations

from functools import partial

from torch.optim import AdamW

from lockstep import data, models
from lockstep.engine.recipe.recipe import Recipe
from lockstep.engine.step.metrics import bits_per_byte, cross_entropy
from lockstep.scaling.rates.schedules import cosine

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
