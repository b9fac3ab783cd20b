"""Read what a loss function returned: a sum over items, and how many items it is over."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from lockstep.data.nested import map_tensors
from lockstep.errors import RecipeError

HOW = (
    "Return (total, count): the sum of the losses and the number of items that it is over "
    '(samples, tokens, boxes), as in `return F.cross_entropy(scores, y, reduction="sum"), len(y)`.'
)


class Warns(Protocol):
    """Something that can print a warning."""

    def warn(self, text: str) -> None:
        """Print `text`."""


class Weighed(NamedTuple):
    """A loss as a sum over items."""

    total: Tensor
    """The summed loss; backward starts here."""
    items: Tensor | float
    """Items, or the sum of their weights."""
    notes: dict[str, tuple[Any, Any]]
    """More numbers to log, each as a sum and its count."""


def weighed(returned: Any, name: str) -> Weighed:
    """Return the sum and the count of what the function `name` returned; refuse anything else."""
    notes: dict[str, tuple[Any, Any]] = {}
    if isinstance(returned, tuple) and len(returned) == 3 and isinstance(returned[2], Mapping):
        notes = {str(k): _note(v, returned[1], name, k) for k, v in returned[2].items()}
        returned = returned[:2]
    if isinstance(returned, Tensor):
        if not returned.dim():
            raise RecipeError(
                f"{name} returned one number without a count: lockstep cannot weigh it against "
                f"the losses of other shards, which may have more or fewer items. {HOW}"
            )
        return Weighed(returned.sum(), float(returned.numel()), notes)
    if not isinstance(returned, tuple) or len(returned) != 2 or not isinstance(returned[0], Tensor):
        kind = type(returned).__name__
        if isinstance(returned, tuple):
            kind = f"a tuple of {', '.join(type(item).__name__ for item in returned)}"
        raise RecipeError(f"{name} returned {kind}. {HOW}")
    values, weights = returned
    if isinstance(weights, Tensor) and weights.dim():
        if weights.shape != values.shape:
            raise RecipeError(
                f"{name} returned losses of shape {tuple(values.shape)} and weights of shape "
                f"{tuple(weights.shape)}. Give each loss its weight. {HOW}"
            )
        return Weighed((values * weights).sum(), weights.detach().double().sum(), notes)
    if not isinstance(weights, Tensor | int | float):
        raise RecipeError(f"{name} returned a count of type {type(weights).__name__}. {HOW}")
    if not isinstance(weights, Tensor) and not 0 <= weights < float("inf"):
        raise RecipeError(f"{name} returned {weights} as its count. {HOW}")
    count = weights.detach().double() if isinstance(weights, Tensor) else float(weights)
    return Weighed(values.sum() if values.dim() else values, count, notes)


class CountCheck:
    """Looks at the counts of whole batches: those of a single shard may well be zero."""

    def __init__(self, progress: Warns) -> None:
        self.progress = progress
        self.warned = False

    def look(self, name: str, total: float, count: float) -> None:
        """Refuse a count that cannot belong to its sum; warn once of a batch without items."""
        if count < 0 or (count == 0 and total != 0):
            raise RecipeError(
                f"the loss of {name} over a whole batch is {total:g}, and its count is {count:g}. "
                f"{HOW}"
            )
        if count == 0 and not self.warned:
            self.warned = True
            self.progress.warn(
                f"a batch of {name} has no items (are all its tokens masked?). Its loss and its "
                "gradient are zero; momentum and weight decay still change the weights."
            )


def _note(value: Any, count: Any, name: str, key: Any) -> tuple[Any, Any]:
    """Return a number to log as a sum and its count."""
    if isinstance(value, Tensor) and value.dim():
        return value.detach().double().sum(), float(value.numel())
    if isinstance(value, tuple) and len(value) == 2:
        return tuple(v.detach().double() if isinstance(v, Tensor) else v for v in value)  # type: ignore[return-value]
    if not isinstance(value, Tensor | int | float):
        raise RecipeError(
            f"{name} returned {key!r} of type {type(value).__name__} to be logged. Give a sum over "
            "the items of the loss, (sum, count), or one value per item."
        )
    if isinstance(count, Tensor) and count.dim():
        count = count.sum()
    return (value.detach().double() if isinstance(value, Tensor) else value), count


def measured(returned: Any, name: str) -> dict[str, tuple[Tensor, Tensor]]:
    """Return sums and counts of what an evaluation returned: a dict of values or (sum, count)."""
    if not isinstance(returned, Mapping) or not returned:
        raise RecipeError(
            f"{name} returned {type(returned).__name__}. Return a dict such as "
            '{"accuracy": (correct.sum(), len(correct))}, or one value per item for each name.'
        )
    found = {}
    for key, value in returned.items():
        # In double precision: the sum of a large chunk would lose digits.
        value = map_tensors(value, Tensor.double)
        if isinstance(value, tuple) and len(value) == 2 and isinstance(value[0], int | float):
            value = (torch.tensor(float(value[0]), dtype=torch.float64), value[1])
        one = weighed(value, f"{name}[{key!r}]")
        total, count = one.total.detach(), torch.as_tensor(one.items, dtype=torch.float64)
        found[str(key)] = (total, count)
    return found
