"""Losses and metrics: one value per item, added up so that every item counts exactly once."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from lockstep.data import Loader, Request
from lockstep.engine.group import Group
from lockstep.engine.recipe import PerItem, Recipe
from lockstep.errors import RecipeError


def cross_entropy(outputs: Tensor, targets: Tensor) -> Tensor:
    """Classes in the last dimension of `outputs`; one loss for each target."""
    scores = outputs.flatten(0, -2).float()
    return functional.cross_entropy(scores, targets.flatten(), reduction="none")


def squared_error(outputs: Tensor, targets: Tensor) -> Tensor:
    """(output - target)^2, for each value."""
    return (outputs - targets).square()


def accuracy(outputs: Tensor, targets: Tensor) -> Tensor:
    """1 where the largest score is that of the target, else 0."""
    return (outputs.argmax(-1) == targets).flatten()


def bits_per_byte(outputs: Tensor, targets: Tensor) -> Tensor:
    """Cross entropy in bits: what a compressor built on the model would need for each byte."""
    return cross_entropy(outputs, targets) / math.log(2)


def items_per_sample(values: Tensor, samples: int, name: str) -> int:
    """How many losses or metric values each sample has; a mean over them is refused."""
    items, rest = divmod(values.numel(), samples)
    if rest or not items or (values.dim() == 0 and samples > 1):
        raise RecipeError(
            f"{name} gave {values.numel()} value(s) for {samples} samples. It must give one value "
            'per sample (or per token of each): with torch\'s losses, pass reduction="none".'
        )
    return items


class Totals(NamedTuple):
    """What all replicas agree on at a control point."""

    loss: float
    """Mean over the items since the last log."""
    bad_step: int | None
    """The first step whose loss was not finite."""
    stop: bool
    """Whether any replica was asked to stop."""
    interval: int
    """Steps until the next control point, as the first replica proposed."""


class Meter:
    """Training loss since the last log, kept on the device: reading it there would stall the step.

    Every shard has a slot of its own, so the sum does not depend on who computed which.
    """

    def __init__(self, shards: int, group: Group) -> None:
        self.group = group
        self.sums = torch.zeros(shards, dtype=torch.float64, device=group.device)
        self.items = 0
        self.bad = torch.full((), math.inf, dtype=torch.float64, device=group.device)

    def add(self, shard: int, loss: Tensor, step: int) -> None:
        """The summed loss of one part of `step`."""
        loss = loss.detach().double()
        self.sums[shard] += loss
        self.bad = torch.where(loss.isfinite(), self.bad, self.bad.clamp(max=step))

    def exchange(self, stop: bool, interval: int) -> Totals:
        """Agree with the other replicas: the one place where the host waits for the step."""
        size, rank = self.group.world.size, self.group.world.rank
        own = torch.zeros(2 * size + 1, dtype=torch.float64, device=self.sums.device)
        own[rank] = self.bad
        own[size + rank] = float(stop)
        own[-1] = float(interval) if rank == 0 else 0.0
        vector = self.group.sum(torch.cat([self.sums, own])).tolist()
        shards = len(self.sums)
        bad = min(vector[shards : shards + size])
        return Totals(
            loss=math.fsum(vector[:shards]) / max(self.items, 1) if math.isinf(bad) else math.nan,
            bad_step=None if math.isinf(bad) else int(bad),
            stop=any(vector[shards + size : -1]),
            interval=int(vector[-1]),
        )

    def reset(self) -> None:
        """Start a new interval."""
        self.sums.zero_()
        self.items = 0


def evaluate(
    model: nn.Module, loader: Loader, size: int, recipe: Recipe, group: Group
) -> dict[str, float]:
    """Means over all test samples, each counted once, with the same bits on any replica count.

    The data are cut into chunks that depend on the recipe alone. A chunk's sums stand in a row of
    their own, so that adding up the rows of all replicas adds zeros only.
    """
    chunk = max(1, min(1024, -(-size // recipe.shards)))
    rank, replicas = group.world.rank, group.world.size
    chunks = range(-(-size // chunk))
    mine = chunks[rank::replicas]
    order = torch.arange(size, device=loader.index_device)
    requests = [Request(0, order[c * chunk : (c + 1) * chunk]) for c in mine]
    functions: dict[str, PerItem] = {"test_loss": recipe.loss, **recipe.metrics}
    table = torch.zeros(len(chunks), 2 * len(functions), dtype=torch.float64, device=group.device)
    model.eval()
    with torch.no_grad():
        for number, (inputs, targets) in zip(mine, loader.batches(requests), strict=True):
            with autocast(recipe, group.device):
                outputs = model(inputs)
            for column, (name, function) in enumerate(functions.items()):
                values = function(outputs, targets)
                items_per_sample(values, len(inputs), name)
                table[number, 2 * column] = values.double().sum()
                table[number, 2 * column + 1] = values.numel()
    model.train()
    sums = group.sum(table).sum(0).tolist()
    return {name: sums[2 * n] / sums[2 * n + 1] for n, name in enumerate(functions)}


def autocast(recipe: Recipe, device: torch.device) -> torch.autocast:
    """bf16 where the recipe asks for it, nothing otherwise."""
    return torch.autocast(device.type, torch.bfloat16, enabled=recipe.precision == "bf16")
