"""Losses and metrics: one value per item, added up so that every item counts exactly once."""

from __future__ import annotations

import math
from itertools import chain, repeat
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
    scores = outputs.flatten(0, -2)
    if scores.dtype != torch.float64:
        scores = scores.float()
    return functional.cross_entropy(scores, targets.flatten(), reduction="none")


def squared_error(outputs: Tensor, targets: Tensor) -> Tensor:
    """(output - target)^2, for each value."""
    _same_shape("squared_error", outputs, targets)
    return (outputs - targets).square()


def accuracy(outputs: Tensor, targets: Tensor) -> Tensor:
    """1 where the largest score is that of the target, else 0."""
    best = outputs.argmax(-1)
    _same_shape("accuracy", best, targets)
    return (best == targets).flatten()


def _same_shape(name: str, outputs: Tensor, targets: Tensor) -> None:
    """Torch would broadcast (n, 1) against (n,) to n x n pairs, silently."""
    if outputs.shape != targets.shape:
        raise RecipeError(
            f"{name}: predictions have shape {tuple(outputs.shape)}, targets "
            f"{tuple(targets.shape)}. Give them the same shape."
        )


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


class Evaluation:
    """Means over all test samples, each counted once, with the same bits on any replica count.

    The data are cut into chunks that depend on the recipe alone. A chunk's sums stand in a row of
    their own, so that adding up the rows of all replicas adds zeros only.
    """

    def __init__(self, loader: Loader, size: int, recipe: Recipe, group: Group) -> None:
        self.recipe, self.group = recipe, group
        chunk = max(1, min(1024, -(-size // recipe.shards)))
        self.chunks = range(-(-size // chunk))
        self.mine = self.chunks[group.world.rank :: group.world.size]
        order = torch.arange(size, device=loader.index_device)
        requests = [Request(0, order[c * chunk : (c + 1) * chunk]) for c in self.mine]
        # One endless stream for all evaluations, so that data workers are started only once.
        self.batches = loader.batches(chain.from_iterable(repeat(requests))) if requests else None

    def __call__(self, model: nn.Module) -> dict[str, float]:
        """Loss and metrics of the model as it is now."""
        functions: dict[str, PerItem] = {"test_loss": self.recipe.loss, **self.recipe.metrics}
        shape = (len(self.chunks), 2 * len(functions))
        table = torch.zeros(shape, dtype=torch.float64, device=self.group.device)
        modes = {module: module.training for module in model.modules()}
        model.eval()
        with torch.no_grad():
            for row in self.mine:
                assert self.batches is not None
                inputs, targets = next(self.batches)
                with autocast(self.recipe, self.group.device):
                    outputs = model(inputs)
                for column, (name, function) in enumerate(functions.items()):
                    values = function(outputs, targets)
                    items_per_sample(values, len(inputs), name)
                    table[row, 2 * column] = values.double().sum()
                    table[row, 2 * column + 1] = values.numel()
        for module, mode in modes.items():
            # Not model.train(): layers that the recipe froze stay frozen.
            module.training = mode
        sums = self.group.sum(table).sum(0).tolist()
        return {name: sums[2 * n] / sums[2 * n + 1] for n, name in enumerate(functions)}


def autocast(recipe: Recipe, device: torch.device) -> torch.autocast:
    """bf16 where the recipe asks for it, nothing otherwise."""
    return torch.autocast(device.type, torch.bfloat16, enabled=recipe.precision == "bf16")
