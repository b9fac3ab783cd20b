"""Losses and metrics: one value per item, added so that every item counts exactly once."""

from __future__ import annotations

import math
from contextlib import AbstractContextManager, nullcontext
from itertools import chain, repeat
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from lockstep.data import Loader, Request
from lockstep.engine.checks.fingerprint import BITS
from lockstep.engine.group import Group
from lockstep.engine.recipe.plan import Plan
from lockstep.engine.recipe.recipe import PerItem, Precision, Recipe
from lockstep.engine.run.receipts import Receipt
from lockstep.errors import RecipeError


def cross_entropy(outputs: Tensor, targets: Tensor, smoothing: float = 0.0) -> Tensor:
    """Return one loss for each target; the last dimension of `outputs` holds the classes.

    A share `smoothing` of each target is spread over all classes (Szegedy et al. 2015, sec. 7).
    """
    scores = outputs.flatten(0, -2)
    if scores.dtype != torch.float64:
        scores = scores.float()
    try:
        return functional.cross_entropy(
            scores, targets.flatten(), reduction="none", label_smoothing=smoothing
        )
    except IndexError as error:
        # On the CPU only: a GPU notices this in its kernel, and stops without a reason.
        raise RecipeError(
            f"cross_entropy: {error} The model gives {scores.shape[-1]} scores, for the targets 0 "
            f"to {scores.shape[-1] - 1}. Build it with one for each class: --model "
            "'resnet50(classes=...)'."
        ) from None


def scores_needed(recipe: Recipe, classes: Any) -> int:
    """Return how many scores a model must give for `classes` (names, a number, or None)."""
    if classes is None or getattr(recipe.loss, "func", recipe.loss) is not cross_entropy:
        return 0
    return classes if isinstance(classes, int) else len(classes)


def check_scores(outputs: Tensor, needed: int) -> None:
    """Refuse too few scores. This looks at shapes alone and does not wait for the device."""
    if outputs.shape[-1] < needed:
        raise RecipeError(
            f"the model gives {outputs.shape[-1]} scores, the data have {needed} classes. Build it "
            f"with one for each, for example with --model 'resnet50(classes={needed})'."
        )


def squared_error(outputs: Tensor, targets: Tensor) -> Tensor:
    """Return (output - target)^2 for each value."""
    _same_shape("squared_error", outputs, targets)
    return (outputs - targets).square()


def accuracy(outputs: Tensor, targets: Tensor) -> Tensor:
    """Return 1 where the largest score is that of the target, else 0."""
    best = outputs.argmax(-1)
    _same_shape("accuracy", best, targets)
    return (best == targets).flatten()


def _same_shape(name: str, outputs: Tensor, targets: Tensor) -> None:
    """Refuse (n, 1) with (n,), which torch would broadcast to n x n pairs."""
    if outputs.shape != targets.shape:
        raise RecipeError(
            f"{name}: predictions have shape {tuple(outputs.shape)}, targets "
            f"{tuple(targets.shape)}. Give them the same shape."
        )


def bits_per_byte(outputs: Tensor, targets: Tensor) -> Tensor:
    """Return the cross entropy in bits, which a compressor would need for each byte."""
    return cross_entropy(outputs, targets) / math.log(2)


LOSSES: tuple[PerItem, ...] = (cross_entropy, squared_error)
METRICS: tuple[PerItem, ...] = (accuracy, bits_per_byte, squared_error)
"""What --loss and --metrics may name."""


def items_per_sample(values: Tensor, samples: int, name: str) -> int:
    """Return how many losses or metric values each sample has; refuse a mean over samples."""
    items, rest = divmod(values.numel(), samples)
    if rest or not items or (values.dim() == 0 and samples > 1):
        raise RecipeError(
            f"{name} gave {values.numel()} value(s) for {samples} samples. It must give one value "
            'per sample (or per token of each): with torch\'s losses, pass reduction="none".'
        )
    return items


UNEVEN = (
    "the loss gives more values for each sample in one part of the batch than in another, so they "
    "cannot be weighed alike. Give the same number for each sample, or write the loop with "
    "lockstep.Loop, whose loss returns a sum and a count."
)


class Totals(NamedTuple):
    """The totals that all replicas agree on at a control point."""

    losses: list[float]
    """The mean over the items of each closed interval."""
    bad_step: int | None
    """The first step whose loss was not finite."""
    stop: bool
    """Whether any replica should stop."""
    uneven: bool
    """Whether the replicas have counted different numbers of losses."""
    interval: int
    """Steps until the next control point, as the first replica proposed."""


CAPACITY = 1 << 14
"""How many losses can wait on the device: more than batches between two control points."""


class Meter:
    """Training loss since the last log. Losses wait on the device: reading one would stall it.

    Every shard has its slot, so the sum does not depend on which replica computed which shard.
    """

    def __init__(self, plan: Plan, group: Group) -> None:
        self.group = group
        parts = plan.parts(group.world.rank)
        self.slots = [part.start for part in parts]
        self.own = slice(parts[0].start, parts[-1].stop)
        shape = (len(self.slots), CAPACITY)
        self.recent = torch.zeros(shape, dtype=torch.float64, device=group.device)
        self.rows = list(self.recent)
        self.at = torch.zeros(1, dtype=torch.int64, device=group.device)
        self.shards = plan.shards
        self.sums = [0.0] * plan.shards
        self.items = 0
        self.counted = 0
        """Losses in all global batches of this process, as this replica counts them."""
        self.bad: int | None = None
        self.waiting: list[int] = []
        """Numbers of the steps whose losses have not been read yet."""
        self.closing: list[tuple[int, int]] = []
        """Where among them an interval ends, and its items."""
        self.closed: list[tuple[list[float], int]] = []
        """Sums and items of the intervals that have not been exchanged yet."""
        self.hashes = torch.zeros(CAPACITY, dtype=torch.int64, device=group.device)
        self.receipts: list[Receipt] = []
        """Hashes of steps, in exact mode, that have been read and not been written yet."""
        self.hashed = False

    def note(self, part: int, loss: Tensor, parts: int) -> None:
        """Keep the summed loss of one part of a step on the device.

        If there are more parts than slots, each slot holds several, one after the other.
        """
        slot, number = divmod(part, parts // len(self.slots))
        at = self.at + number if number else self.at
        self.rows[slot].index_copy_(0, at, loss.detach().double().view(1))

    def hash(self, gradient: Tensor) -> None:
        """Keep a hash of a step's gradient on the device: the sum of its bits, read as numbers."""
        bits = gradient.detach().view(BITS[gradient.element_size()]).sum(dtype=torch.int64)
        self.hashes.index_copy_(0, self.at, bits.view(1))
        self.hashed = True

    def turn(self, parts: int) -> None:
        """Complete a step of `parts` parts, as the device sees it."""
        self.at.add_(parts // len(self.slots))

    def after(self, step: int, items: int, parts: int) -> None:
        """Complete a step of `parts` parts, as the host sees it."""
        self.waiting.extend([step] * (parts // len(self.slots)))
        self.items += items
        self.counted += items

    def state(self) -> tuple[Tensor, int]:
        """Return the sums and items of the open interval; all replicas call this together."""
        return self.group.sum(torch.tensor(self.sums, dtype=torch.float64)), self.items

    def load(self, sums: Tensor, items: int) -> None:
        """Continue the interval that `state` returned."""
        self.sums[self.own] = sums[self.own].tolist()
        self.items = items

    def close(self) -> None:
        """End an interval, and begin the next."""
        self.closing.append((len(self.waiting), self.items))
        self.items = 0

    def collect(self) -> None:
        """Read the losses: the host waits for the device."""
        columns = self.recent[:, : len(self.waiting)].T.tolist()
        start = 0
        for end, items in self.closing:
            self._add(start, columns[start:end])
            self.closed.append((self.sums, items))
            self.sums = [0.0] * self.shards
            start = end
        self._add(start, columns[start:])
        if self.hashed:
            found = zip(self.waiting, self.hashes[: len(self.waiting)].tolist(), strict=True)
            # A step of several rounds has one hash, in the place of its first round.
            each = dict(reversed(list(found)))
            self.receipts += [Receipt(n, n, each[n], math.nan) for n in sorted(each)]
        self.waiting.clear()
        self.closing.clear()
        self.at.zero_()

    def _add(self, start: int, columns: list[list[float]]) -> None:
        # One after the other, so that the sum does not depend on when it was collected.
        for step, values in zip(self.waiting[start:], columns, strict=False):
            for slot, value in zip(self.slots, values, strict=True):
                self.sums[slot] += value
                if self.bad is None and not math.isfinite(value):
                    self.bad = step

    def exchange(self, stop: bool, interval: int) -> Totals:
        """Agree with the other replicas. Only here does the host wait for the step."""
        self.collect()
        size, rank = self.group.world.size, self.group.world.rank
        own = [0.0] * (3 * size + 1)
        own[rank] = math.inf if self.bad is None else float(self.bad)
        own[size + rank] = float(stop)
        own[2 * size + rank] = float(self.counted)
        own[-1] = float(interval) if rank == 0 else 0.0
        values = [*own, *(value for sums, _ in self.closed for value in sums)]
        vector = self.group.sum(torch.tensor(values, dtype=torch.float64)).tolist()
        common, sums = vector[: len(own)], vector[len(own) :]
        bad = min(common[:size])
        items = [items for _, items in self.closed]
        self.closed.clear()
        return Totals(
            losses=[
                math.fsum(sums[n * self.shards : (n + 1) * self.shards]) / max(number, 1)
                for n, number in enumerate(items)
            ],
            bad_step=None if math.isinf(bad) else int(bad),
            stop=any(common[size : 2 * size]),
            uneven=len(set(common[2 * size : -1])) > 1,
            interval=int(common[-1]),
        )


def chunk_size(recipe: Recipe, samples: int) -> int:
    """Return how many of `samples` samples are evaluated at once."""
    # A multiple of what training takes at once, so that it fits into memory as well.
    shard = -(-recipe.global_batch // recipe.shards)
    return recipe.evaluation_batch or max(1, min(1024, -(-samples // recipe.shards), 4 * shard))


class Evaluation:
    """Means over all test samples, each counted once, with the same bits on any replica count.

    The data are cut into chunks that depend on the recipe alone. Each chunk has its row of sums, so
    the sum over the replicas adds nothing but zeros to it.
    """

    def __init__(self, loader: Loader, size: int, recipe: Recipe, group: Group) -> None:
        self.recipe, self.group = recipe, group
        chunk = chunk_size(recipe, size)
        self.chunks = range(-(-size // chunk))
        self.mine = self.chunks[group.world.rank :: group.world.size]
        order = torch.arange(size, device=loader.index_device)
        requests = [Request(0, order[c * chunk : (c + 1) * chunk]) for c in self.mine]
        # One endless stream for all evaluations, so that data workers are started only once.
        self.batches = loader.batches(chain.from_iterable(repeat(requests))) if requests else None

    def close(self) -> None:
        """End the data workers: nothing will be evaluated any more.

        The garbage collector would close the queues to them first, and then wait for each in vain.
        """
        self.batches = None

    def __call__(self, model: nn.Module) -> dict[str, float]:
        """Return loss and metrics of the model as it is now."""
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


def autocast(recipe: Recipe, device: torch.device) -> AbstractContextManager[Any]:
    """Return a context that computes in bf16 if the recipe asks for it."""
    if recipe.precision is not Precision.BF16:
        return nullcontext()
    return torch.autocast(device.type, torch.bfloat16)
