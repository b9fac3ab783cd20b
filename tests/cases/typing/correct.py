"""A user's program that uses much of the public API correctly."""

from dataclasses import replace
from functools import partial
from pathlib import Path

import torch
from torch import nn

import lockstep
from lockstep.augment import SampleKeys
from lockstep.optimizers import LARS
from lockstep.schedules import Schedule, cosine, warmed


def brighten(images: torch.Tensor, keys: SampleKeys) -> torch.Tensor:
    return images + keys.uniform("brighten")[:, None, None, None]


def points() -> lockstep.Data:
    x = torch.linspace(-1, 1, 64)[:, None]
    return lockstep.Data(train=lockstep.Tensors(x, 2 * x), test=lockstep.Tensors(x, 2 * x))


schedule: Schedule = warmed(partial(cosine, floor=0.1), share=0.1)
recipe = lockstep.Recipe(
    name="points",
    model=lambda: nn.Linear(1, 1),
    data=points,
    loss=lockstep.metrics.squared_error,
    metrics={"error": lockstep.metrics.squared_error},
    optimizer=partial(LARS, momentum=0.9),
    learning_rate=0.1 * lockstep.rules.linear_rule(8),
    schedule=schedule,
    augment=(lockstep.augment.flip, brighten),
    global_batch=16,
    epochs=2,
)


def main() -> None:
    try:
        run = lockstep.train(recipe, replicas=2, exact=True, out="runs/points", timeline=True)
    except lockstep.LockstepError as error:
        raise SystemExit(error.exit_code) from error
    error_reached: float = run.metrics["error"]
    folder: Path = run.folder
    model: nn.Linear = run.load_weights(nn.Linear(1, 1))
    again = lockstep.Run.load(folder)
    other = lockstep.train(replace(lockstep.recipes.DIGITS, shards=8), epochs=1, speed="eager")
    print(error_reached, model.weight, again.steps, other.weights_sha256, run.history()[-1])


def plain_loop(model: nn.Module, data: lockstep.Data) -> None:
    noise = lockstep.noise.StepNoise(model.parameters(), batch=64)
    for inputs, targets, share in lockstep.GlobalBatches(data.train, global_batch=64, epochs=2):
        (nn.functional.cross_entropy(model(inputs), targets) * share).backward()
        noise.step()
    print(noise.estimate().value)
