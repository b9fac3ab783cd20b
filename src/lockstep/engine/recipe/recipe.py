"""A recipe holds everything that decides what a run computes, but no number of replicas."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum, StrEnum
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from lockstep.data import Data, SampleKeys
from lockstep.engine.checks.identity import identity
from lockstep.errors import LockstepError, RecipeError, raised
from lockstep.scaling.batch.growth import Growth
from lockstep.scaling.rates.schedules import Schedule, constant

PerItem = Callable[[Tensor, Tensor], Tensor]
"""From outputs and targets to one value per item."""
Measured = Callable[[Any, Any], Any]
"""From outputs and targets of any structure to one value per item, or (values, weights)."""
MOST_DOUBLINGS = 10
"""How often a batch may double."""


class Precision(StrEnum):
    """The numbers that a model computes with."""

    FP32 = "fp32"
    TF32 = "tf32"
    """Faster matrix products on NVIDIA GPUs."""
    BF16 = "bf16"
    """Autocast to bfloat16."""
    FP16 = "fp16"
    """Autocast to float16, with a loss scale that follows the gradients."""
    PURE_BF16 = "pure-bf16"
    """Weights, gradients and optimizer state in bfloat16, except those of batch norm."""

    @property
    def rounding(self) -> float:
        """The relative size of one rounding."""
        bits = {Precision.FP32: 23, Precision.TF32: 10, Precision.FP16: 10}
        return float(2.0 ** -bits.get(self, 8))


PrecisionName = Precision | Literal["fp32", "tf32", "bf16", "fp16", "pure-bf16"]


class BatchNorm(StrEnum):
    """The samples that batch norm takes its statistics over."""

    SHARD = "shard"
    SYNC = "sync"
    """The global batch, over all replicas."""


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """A model, its data, and how to train it. Pass functions as functions, not as names."""

    name: str
    """The recipe's name, also of the run's folder."""
    model: Callable[[], nn.Module]
    """Builds the model; lockstep seeds torch before it calls this."""
    data: Callable[[], Data]
    """Loads the training and the test data."""
    loss: Measured
    """Computes one loss per item (a sample, or a token) from outputs and targets: use
    `reduction="none"`. With `collate`, it may also return (values, weights) or (sum, count)."""
    metrics: Mapping[str, Any]
    """Measured on the test data, one value per item; runs are compared by the first metric. One
    over the whole test set is `lockstep.metrics.whole(function)`, or an object of torchmetrics."""
    optimizer: Callable[..., torch.optim.Optimizer]
    """Called with the parameters and `lr`; fix other arguments with functools.partial. A function
    whose first argument is called `model` gets the model, to form groups of parameters by name."""
    learning_rate: float
    """The peak learning rate, for this global batch."""
    schedule: Schedule = constant
    """Computes a factor of the rate from the progress of the run (0 to 1)."""
    warmup: float = 0.0
    """Epochs over which the rate rises from `warmup_start`."""
    warmup_start: float = 0.0
    """The share of the rate at which a warmup starts: 1/N for a rate that was raised N times."""
    global_batch: int
    """Samples per optimizer step, over all replicas."""
    shards: int = 4
    """Slices of the global batch, a power of two. A run can use this many replicas or fewer."""
    grow_to: int | None = None
    """The most samples that a step may take when the noise of the gradient makes them useful."""
    grow_from: int | None = None
    """The fewest samples of a step once the noise is known; default: `global_batch`."""
    epochs: int
    """Passes over the training data; with `grow_to`, as many as equal progress needs."""
    precision: PrecisionName = Precision.FP32
    """`fp32`, `tf32` (faster matrix products on NVIDIA GPUs), `bf16` or `fp16` (autocast; `fp16`
    scales the loss), or `pure-bf16` (weights and gradients in bfloat16)."""
    seed: int = 0
    """Decides initial weights, order, augmentation and dropout."""
    augment: Sequence[Callable[[Tensor, SampleKeys], Tensor]] = ()
    """Functions of the training images and their keys, applied in turn on the device."""
    batch_norm: BatchNorm | Literal["shard", "sync"] = BatchNorm.SHARD
    """Take statistics over each `shard`, or `sync`hronise them over the global batch."""
    clip: float | None = None
    """The largest global norm of the gradient, or None."""
    target: float | None = None
    """Value of the first metric to reach; the time until then is reported."""
    channels_last: bool = False
    """Keep images and convolution weights in this layout: often faster; `x.view` may fail."""
    evaluation_batch: int | None = None
    """Samples that are evaluated at once; default: four shards, and 1,024 or fewer."""
    lower_is_better: bool = False
    """Whether the first metric should fall (an error, bits per byte) or rise (accuracy)."""
    may_change: str | Sequence[str] = ()
    """Variables that model, loss and data may change in exact mode, because nothing but a log
    depends on them: names as a message gives them, such as `Net.calls`."""
    collate: Callable[[list[Any]], Any] | None = None
    """Makes a batch of a list of samples; then samples and batches may have any structure. A batch
    is (inputs, targets), or a dict that is both. Inputs in a dict become `model(**inputs)`."""

    def __post_init__(self) -> None:
        """Refuse values that cannot work, and say what to type instead."""
        for name in ("global_batch", "shards", "epochs", "evaluation_batch"):
            value = getattr(self, name)
            if name == "evaluation_batch" and value is None:
                continue
            if not isinstance(value, int) or value < 1:
                raise RecipeError(f"{name} is {value!r}; it must be a whole number of 1 or more.")
        if not isinstance(self.seed, int):
            raise RecipeError(f"seed is {self.seed!r}; it must be a whole number.")
        for name in ("learning_rate", "warmup", "warmup_start", "clip", "target"):
            value = getattr(self, name)
            may_be_none = name in ("clip", "target") and value is None
            if not (may_be_none or isinstance(value, int | float)):
                raise RecipeError(f"{name} is {value!r}; it must be a number.")
        if not (math.isfinite(self.learning_rate) and self.learning_rate > 0):
            raise RecipeError(f"learning_rate is {self.learning_rate}; it must be above 0.")
        if not (math.isfinite(self.warmup) and 0 <= self.warmup <= self.epochs):
            raise RecipeError(
                f"warmup is {self.warmup} epochs of {self.epochs}; use 0 to {self.epochs}."
            )
        if not 0 <= self.warmup_start <= 1:
            raise RecipeError(
                f"warmup_start is {self.warmup_start}; it must be a share of the rate, 0 to 1."
            )
        if self.clip is not None and not self.clip > 0:
            raise RecipeError(f"clip is {self.clip}; it must be above 0, or none.")
        kinds: dict[str, type[StrEnum]] = {"precision": Precision, "batch_norm": BatchNorm}
        for name, kind in kinds.items():
            value = getattr(self, name)
            if value not in tuple(kind):
                raise RecipeError(f"{name} is {value!r}; known: {', '.join(kind)}.")
            object.__setattr__(self, name, kind(value))
        object.__setattr__(self, "may_change", names_in(self.may_change))
        if "lr" in getattr(self.optimizer, "keywords", {}):
            raise RecipeError(
                "the optimizer is given an lr of its own, which learning_rate (--learning-rate) "
                "would replace. Leave it out there."
            )
        if not self.metrics:
            raise RecipeError("metrics is empty; name at least one, such as accuracy.")
        if "test_loss" in self.metrics:
            raise RecipeError("a metric is called test_loss, which is the loss; rename it.")
        self._check_growth()
        self.refuse_if_general()
        plain = ("model", "data", "loss", "optimizer", "schedule")
        functions = {name: getattr(self, name) for name in plain}
        functions |= {f"metric {name}": function for name, function in self.metrics.items()}
        functions |= {f"augment {n}": function for n, function in enumerate(self.augment)}
        if self.collate is not None:
            functions["collate"] = self.collate
        for name, function in functions.items():
            if not callable(function):
                raise RecipeError(
                    f"{name} is {function!r}; it must be a function. "
                    f"For one with arguments: functools.partial(function, argument=...)."
                )

    def _check_growth(self) -> None:
        """Refuse bounds that a growing batch cannot have."""
        if self.grow_from is not None and self.grow_to is None:
            raise RecipeError(
                "grow_from is given without grow_to: give grow_to, the largest batch."
            )
        if self.grow_to is None:
            return
        for name in ("grow_to", "grow_from"):
            value = getattr(self, name)
            known = [self.global_batch << n for n in range(MOST_DOUBLINGS + 1)]
            if value is not None and not (isinstance(value, int) and value in known):
                near = known[:2]
                if isinstance(value, int):
                    near = sorted(known, key=lambda k: abs(k - value))[:2]
                raise RecipeError(
                    f"{name} is {value!r}; it must be the global batch of {self.global_batch} "
                    f"doubled, up to {MOST_DOUBLINGS} times. Nearest: {near[0]}, {near[1]}."
                )
        if self.grow_from is not None and self.grow_from > self.grow_to:
            raise RecipeError(f"grow_from is {self.grow_from}, more than grow_to ({self.grow_to}).")
        if self.shards < 2:
            raise RecipeError(
                "the batch can grow only if it is cut into shards, from which lockstep measures "
                "the noise of the gradient: set shards to 2 or more."
            )
        if self.batch_norm is BatchNorm.SYNC:
            raise RecipeError(
                "batch_norm is 'sync', which mixes the shards from which lockstep measures the "
                "noise of the gradient: a batch that grows needs 'shard'."
            )

    @property
    def is_general(self) -> bool:
        """Whether a `Loop` must train the recipe, because no recorded step can."""
        return (
            self.collate is not None
            or self.precision in (Precision.FP16, Precision.PURE_BF16)
            or any(is_whole(metric) for metric in self.metrics.values())
        )

    def refuse_if_general(self) -> None:
        """Refuse fields that only recorded steps know."""
        if not self.is_general:
            return
        instead = {
            "augment": "augment in the data set or in collate: lockstep seeds both per sample",
            "grow_to": "leave it out",
            "channels_last": "leave it out, or convert the model and its inputs yourself",
        }
        for name, what in instead.items():
            if getattr(self, name):
                raise RecipeError(
                    f"{name} does not work with {self.why_general}: a Loop trains such a "
                    f"recipe, and has no {name}. Instead, {what}."
                )
        if self.batch_norm is BatchNorm.SYNC:
            raise RecipeError(
                f"batch_norm='sync' does not work with {self.why_general}: a Loop trains such a "
                "recipe, and keeps statistics per shard. Use 'shard', which does not "
                "depend on the replicas either."
            )

    @property
    def why_general(self) -> str:
        """The first field that asks for the general loop."""
        if self.collate is not None:
            return "collate"
        if self.precision in (Precision.FP16, Precision.PURE_BF16):
            return f"precision {self.precision}"
        return "a metric over the whole test set"

    @property
    def grows(self) -> bool:
        """Whether a step may take more samples than the global batch."""
        return (self.grow_to or 0) > self.global_batch

    def growth(self, samples: int) -> Growth | None:
        """Return what decides the size of each step over `samples` samples, if it may change."""
        if not self.grows:
            return None
        return Growth(
            batch=self.global_batch,
            samples=samples,
            epochs=self.epochs,
            least=(self.grow_from or self.global_batch) // self.global_batch,
            most=(self.grow_to or self.global_batch) // self.global_batch,
        )

    @property
    def metric(self) -> str:
        """The metric by which runs are compared."""
        return next(iter(self.metrics))

    def reaches_target(self, value: float) -> bool:
        """Tell whether a value of the first metric is as good as the target."""
        if self.target is None:
            return False
        return value <= self.target if self.lower_is_better else value >= self.target

    def identities(self) -> dict[str, str]:
        """Return hashes of the code of the recipe's functions, to notice that one was edited."""
        functions = {name: getattr(self, name) for name in ("model", "data", "loss", "optimizer")}
        functions |= {"schedule": self.schedule, "augment": tuple(self.augment)}
        if self.collate is not None:
            functions["collate"] = self.collate
        functions |= {f"metric {name}": function for name, function in self.metrics.items()}
        return {
            name: identity(f.function if isinstance(f, Whole) else f)
            for name, f in functions.items()
        }

    def described(self) -> dict[str, Any]:
        """Return the recipe in words and numbers, for run.json and to compare recipes."""
        return {field.name: describe(getattr(self, field.name)) for field in fields(self)}


def names_in(given: str | Sequence[str]) -> tuple[str, ...]:
    """Return names given as a sequence, or as one string with commas between them."""
    parts = given.split(",") if isinstance(given, str) else given
    return tuple(part.strip() for part in parts if part.strip())


class Whole:
    """A metric over the whole test set: a function of all outputs and all targets."""

    def __init__(self, function: Measured) -> None:
        self.function = function
        self.__name__ = getattr(function, "__name__", type(function).__name__)

    def __call__(self, outputs: Any, targets: Any) -> Any:
        """Return a number, or a tensor or dict of numbers."""
        return self.function(outputs, targets)


def is_whole(metric: Any) -> bool:
    """Tell whether a metric is over the whole test set: `Whole`, or an object of torchmetrics."""
    return isinstance(metric, Whole) or (
        not isinstance(metric, type)
        and all(callable(getattr(metric, name, None)) for name in ("update", "compute", "reset"))
    )


def build(where: str, function: Callable[..., Any], *arguments: Any, **keywords: Any) -> Any:
    """Call a recipe's function; turn what it raises into a RecipeError that names it."""
    try:
        return function(*arguments, **keywords)
    except LockstepError:
        raise
    except Exception as error:
        raise RecipeError(raised(where, error)) from error


def describe(value: Any) -> Any:
    """Return a function as one would type it; numbers, strings and None as they are.

    >>> describe(functools.partial(math.pow, 2))
    'pow(2)'
    """
    if isinstance(value, functools.partial):
        given = [str(describe(argument)) for argument in value.args]
        given += [f"{name}={describe(argument)}" for name, argument in value.keywords.items()]
        return f"{describe(value.func)}({', '.join(given)})"
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, str | int | float | None):
        return value
    if isinstance(value, Path | torch.dtype | torch.device):
        return str(value)
    if isinstance(value, Mapping):
        return {name: describe(item) for name, item in value.items()}
    if isinstance(value, Sequence):
        return [describe(item) for item in value]
    if is_dataclass(value):
        return repr(value)
    return getattr(value, "__name__", type(value).__name__)
