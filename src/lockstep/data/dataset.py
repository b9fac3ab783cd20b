"""What a run trains on: two data sets, and the data sets that can live on the device whole."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, Self, runtime_checkable

import torch
from torch import Tensor


@runtime_checkable
class Resident(Protocol):
    """A data set that hands out many samples at once, on the device where it lives."""

    def __len__(self) -> int:
        """How many samples there are."""
        ...

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        """One sample: it is a map-style data set as well."""
        ...

    def take(self, indices: Tensor) -> tuple[Tensor, Tensor]:
        """The inputs and targets of `indices`, stacked, on the device of the data."""
        ...

    def to(self, device: torch.device) -> Self:
        """The same data on `device`."""
        ...

    @property
    def nbytes(self) -> int:
        """Memory that it needs on the device."""
        ...


@dataclass(frozen=True, kw_only=True)
class Data:
    """The two data sets of a recipe."""

    train: Any
    """What is trained on: `Resident`, or any map-style `Dataset` of (input, target)."""
    test: Any
    """What is evaluated on; never augmented."""
    prepare: Callable[[Tensor], Tensor] | None = None
    """Applied to the inputs on the device after augmentation: bytes to normalised floats, say."""


class Tensors:
    """Inputs and targets as two tensors whose first dimension counts the samples."""

    def __init__(self, inputs: Tensor, targets: Tensor) -> None:
        """Keep the two tensors; nothing is copied."""
        if len(inputs) != len(targets):
            raise ValueError(f"{len(inputs)} inputs do not go with {len(targets)} targets")
        self.inputs, self.targets = inputs, targets

    def __len__(self) -> int:
        """How many samples there are."""
        return len(self.inputs)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        """One sample."""
        return self.inputs[index], self.targets[index]

    def take(self, indices: Tensor) -> tuple[Tensor, Tensor]:
        """The samples of `indices`, stacked."""
        # Whole rows: several times as fast as indexing with brackets.
        return self.inputs.index_select(0, indices), self.targets.index_select(0, indices)

    def to(self, device: torch.device) -> Tensors:
        """The same data on `device`."""
        return Tensors(self.inputs.to(device), self.targets.to(device))

    @property
    def nbytes(self) -> int:
        """Memory that it needs on the device."""
        return self.inputs.nbytes + self.targets.nbytes


class Windows:
    """A long text cut into windows of `length` tokens; the target is the text one token later."""

    def __init__(self, tokens: Tensor, length: int) -> None:
        """Cut `tokens` (one dimension); a rest shorter than a window is left out."""
        if len(tokens) <= length:
            raise ValueError(f"{len(tokens)} tokens hold no window of {length} and its successor")
        self.tokens, self.length = tokens, length
        self._offsets = torch.arange(length + 1, device=tokens.device)

    def __len__(self) -> int:
        """How many windows there are."""
        return (len(self.tokens) - 1) // self.length

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        """One window and its successor."""
        inputs, targets = self.take(torch.tensor([index], device=self.tokens.device))
        return inputs[0], targets[0]

    def take(self, indices: Tensor) -> tuple[Tensor, Tensor]:
        """The windows of `indices`, stacked, as int64."""
        window = self.tokens[indices[:, None] * self.length + self._offsets].long()
        return window[:, :-1], window[:, 1:]

    def to(self, device: torch.device) -> Windows:
        """The same text on `device`."""
        return Windows(self.tokens.to(device), self.length)

    @property
    def nbytes(self) -> int:
        """Memory that it needs on the device."""
        return self.tokens.nbytes
