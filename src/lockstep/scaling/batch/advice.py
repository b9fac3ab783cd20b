"""Turn measurements into advice: batch, rate, warmup and time for a number of replicas.

The critical batch gives the number of steps; the time of one replica's share and of the exchange
gives the seconds of a step. The advised batch is the smallest that is nearly as fast as the best.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy

from lockstep.scaling.batch.critical import Tradeoff
from lockstep.scaling.rates.rules import adam_sqrt_rule, linear_rule, sqrt_rule

Kind = Literal["sgd", "adam", "other"]
NEARLY = 1.05
"""A smaller batch is preferred if it takes no more than this many times the best time."""
LEAST_SAVING = 0.1
"""A batch is doubled only if that saves at least this share of the steps."""
WARMUP_SHARE = 0.05
"""The share of the epochs that warms up a raised rate (Goyal et al. 2017: 5 of 90)."""
HIDDEN = 2 / 3
"""The share of a step's computation, its backward pass, that can hide an exchange."""


@dataclass(frozen=True, kw_only=True)
class Measured:
    """Measurements of a recipe on one machine."""

    global_batch: int
    """The recipe's global batch."""
    epochs: int
    train_samples: int
    learning_rate: float
    warmup: float
    shards: int
    kind: Kind
    """The kind of optimizer: how its rate changes with the batch."""
    betas: tuple[float, float]
    critical_batch: float
    seconds: Mapping[int, float]
    """Seconds of a step on one replica, by micro-batch."""
    exchange: Mapping[int, float]
    """Seconds to exchange the gradients, by number of replicas."""
    hides: bool
    """Whether backward continues while gradients are exchanged."""

    @property
    def tradeoff(self) -> Tradeoff:
        """Steps by batch size; only their ratios count here."""
        return Tradeoff(1.0, self.critical_batch)

    def epochs_at(self, batch: int) -> int:
        """Return the whole epochs that a batch needs to come as far as the recipe's batch."""
        steps = self.tradeoff.steps(batch) / self.tradeoff.steps(self.global_batch)
        # A rounding error must not add an epoch.
        needed = math.ceil(self.epochs * steps * batch / self.global_batch - 1e-6)
        return max(self.epochs, needed)

    def steps_at(self, batch: int) -> int:
        """Return the steps that a batch needs to come as far as the recipe's batch."""
        return self.epochs_at(batch) * math.ceil(self.train_samples / batch)

    def seconds_in_all(self, replicas: int, batch: int) -> float:
        """Return the seconds of the whole training."""
        return self.steps_at(batch) * self.step(replicas, batch)

    @property
    def largest(self) -> int:
        """The largest micro-batch that fits."""
        return max(self.seconds)

    def compute(self, samples: float) -> float:
        """Return the seconds that one replica takes for `samples` samples."""
        parts = math.ceil(samples / self.largest)
        sizes = sorted(self.seconds)
        times = [self.seconds[size] for size in sizes]
        return parts * float(numpy.interp(samples / parts, sizes, times))

    def exchanged(self, replicas: int) -> float:
        """Return the seconds of an exchange; for more replicas than measured, as in a ring."""
        if replicas == 1:
            return 0.0
        if replicas in self.exchange:
            return self.exchange[replicas]
        known = max(self.exchange)
        return self.exchange[known] * (1 - 1 / replicas) / (1 - 1 / known)

    def step(self, replicas: int, batch: int) -> float:
        """Return the seconds of a step."""
        compute, exchange = self.compute(batch / replicas), self.exchanged(replicas)
        return compute + max(0.0, exchange - (HIDDEN * compute if self.hides else 0.0))


@dataclass(frozen=True, kw_only=True)
class Advice:
    """Advice for one number of replicas."""

    replicas: int
    global_batch: int
    micro_batch: int
    accumulation: int
    shards: int
    rule: str
    rate_factor: float
    learning_rate: float
    betas: tuple[float, float] | None
    """New betas for Adam, or None if they stay."""
    warmup: float
    """Epochs of warmup."""
    warmup_start: float
    epochs: int
    steps: int
    step_seconds: float
    seconds: float
    speed_up: float
    """The gain over the unchanged recipe on one replica."""
    measured: bool
    """Whether the exchange was measured with this many replicas, or follows from fewer."""
    why: str


def advise(measured: Measured, replicas: int, batch: int | None = None) -> Advice:
    """Return the fastest settings that keep the accuracy, judged by the noise scale.

    If `batch` is given, advise on the rate and the epochs for it.
    """

    def seconds(batch: int) -> float:
        return measured.seconds_in_all(replicas, batch)

    batches = [batch] if batch is not None else candidates(measured, replicas)
    best = min(seconds(size) for size in batches)
    batch = next(size for size in batches if seconds(size) <= NEARLY * best)
    factor, rule, betas = _rate(measured, batch)
    local = batch / replicas
    accumulation = math.ceil(local / measured.largest)
    raised = factor > 1.0
    return Advice(
        replicas=replicas,
        global_batch=batch,
        micro_batch=math.ceil(local / accumulation),
        accumulation=accumulation,
        shards=max(measured.shards, replicas),
        rule=rule,
        rate_factor=factor,
        learning_rate=measured.learning_rate * factor,
        betas=betas,
        warmup=max(measured.warmup, WARMUP_SHARE * measured.epochs) if raised else measured.warmup,
        warmup_start=1.0 / factor if raised else 0.0,
        epochs=measured.epochs_at(batch),
        steps=measured.steps_at(batch),
        step_seconds=measured.step(replicas, batch),
        seconds=seconds(batch),
        speed_up=measured.seconds_in_all(1, measured.global_batch) / seconds(batch),
        measured=replicas == 1 or replicas in measured.exchange,
        why=_why(measured, replicas, batch, batches),
    )


def candidates(measured: Measured, replicas: int) -> list[int]:
    """Return the recipe's batch and its doublings, while each saves enough steps."""
    batch, tradeoff = measured.global_batch, measured.tradeoff
    # Every replica has at least one shard, and every shard as many samples as the others.
    while batch % max(measured.shards, replicas):
        batch *= 2
    found = [batch]
    widest = 1.0 / (1.0 - min(measured.betas)) if measured.kind == "adam" else math.inf
    while (
        tradeoff.saved_by_doubling(found[-1]) >= LEAST_SAVING
        and 2 * found[-1] <= widest * measured.global_batch
        and 2 * found[-1] <= measured.train_samples
    ):
        found.append(2 * found[-1])
    return found


def _rate(measured: Measured, batch: int) -> tuple[float, str, tuple[float, float] | None]:
    """Return the factor of the rate, the name of its rule, and Adam's betas if they change."""
    scale = batch / measured.global_batch
    if scale == 1.0:
        return 1.0, "unchanged", None
    if measured.kind == "adam":
        if scale * (1.0 - min(measured.betas)) > 1.0:
            return sqrt_rule(scale), "square root, too much for Adam's betas", None
        scaled = adam_sqrt_rule(scale, measured.betas)
        return scaled.rate, "square root, with Adam's betas", scaled.betas
    if measured.kind == "other":
        return sqrt_rule(scale), "square root", None
    # AdaScale's gain at the critical batch: each step does as much more as there are fewer steps.
    gain = measured.tradeoff.steps(measured.global_batch) / measured.tradeoff.steps(batch)
    return gain, "linear" if gain > 0.9 * linear_rule(scale) else "AdaScale's gain", None


def _why(measured: Measured, replicas: int, batch: int, batches: Sequence[int]) -> str:
    saved = measured.tradeoff.saved_by_doubling(batch)
    next_one = f"another doubling would save {saved:.0%} of the steps"
    compute, exchange = measured.compute(batch / replicas), measured.exchanged(replicas)
    if replicas > 1 and batch < 2 * replicas:
        return f"each replica has one sample of {batch:,} in a step: add no more replicas"
    if batch == batches[-1] and saved < LEAST_SAVING:
        return f"past {batch:,} samples in a step {next_one}"
    if batch == batches[-1]:
        limit = (
            "the training data have" if 2 * batch > measured.train_samples else "Adam's betas allow"
        )
        return f"{limit} no more than {batch:,} samples for a step; {next_one}"
    longer = measured.step(replicas, 2 * batch) / measured.step(replicas, batch)
    if exchange > compute:
        return (
            f"the exchange takes {exchange / (exchange + compute):.0%} of a step; {next_one}, "
            f"each {longer:.2f} times as long"
        )
    return f"{next_one}, each {longer:.2f} times as long"
