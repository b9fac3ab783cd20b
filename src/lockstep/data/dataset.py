"""The two data sets of a run, and data sets that can live on the device as a whole."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, Self, runtime_checkable

import torch
from torch import Tensor


@runtime_checkable
class Resident(Protocol):
    """A data set that returns many samples at once, on the device where it lives."""

    def __len__(self) -> int:
        """Return the number of samples."""
        ...

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        """Return one sample, as any map-style data set does."""
        ...

    def take(self, indices: Tensor) -> tuple[Tensor, Tensor]:
        """Return the inputs and targets of `indices`, stacked, on the device of the data."""
        ...

    def to(self, device: torch.device) -> Self:
        """Return the data on `device`."""
        ...

    @property
    def nbytes(self) -> int:
        """Bytes that the data need on the device."""
        ...


@dataclass(frozen=True, kw_only=True)
class Data:
    """The two data sets of a recipe."""

    train: Any
    """Data to train on: `Resident`, or any map-style `Dataset` of (input, target)."""
    test: Any
    """Data to evaluate on; they are never augmented."""
    prepare: Callable[[Tensor], Tensor] | None = None
    """A function of the augmented inputs on the device, such as bytes to normalised floats."""


class Tensors:
    """Inputs and targets as two tensors whose first dimension counts the samples."""

    def __init__(self, inputs: Tensor, targets: Tensor) -> None:
        """Keep the two tensors without a copy."""
        if len(inputs) != len(targets):
            raise ValueError(f"{len(inputs)} inputs do not go with {len(targets)} targets")
        self.inputs, self.targets = inputs, targets

    def __len__(self) -> int:
        """Return the number of samples."""
        return len(self.inputs)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        """Return one sample."""
        return self.inputs[index], self.targets[index]

    def take(self, indices: Tensor) -> tuple[Tensor, Tensor]:
        """Return the samples of `indices`, stacked."""
        # This copies whole rows, several times as fast as indexing with brackets.
        return self.inputs.index_select(0, indices), self.targets.index_select(0, indices)

    def to(self, device: torch.device) -> Tensors:
        """Return the data on `device`."""
        return Tensors(self.inputs.to(device), self.targets.to(device))

    @property
    def nbytes(self) -> int:
        """Bytes that the data need on the device."""
        return self.inputs.nbytes + self.targets.nbytes


class Windows:
    """A long text cut into windows of `length` tokens; targets are one token later."""

    def __init__(self, tokens: Tensor, length: int) -> None:
        """Cut `tokens` (one dimension), without a last part that is shorter than a window."""
        if len(tokens) <= length:
            raise ValueError(f"{len(tokens)} tokens hold no window of {length} and its successor")
        self.tokens, self.length = tokens, length
        self._offsets = torch.arange(length + 1, device=tokens.device)

    def __len__(self) -> int:
        """Return the number of windows."""
        return (len(self.tokens) - 1) // self.length

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        """Return one window and the same window one token later."""
        inputs, targets = self.take(torch.tensor([index], device=self.tokens.device))
        return inputs[0], targets[0]

    def take(self, indices: Tensor) -> tuple[Tensor, Tensor]:
        """Return the windows of `indices`, stacked, as int64."""
        window = self.tokens[indices[:, None] * self.length + self._offsets].long()
        return window[:, :-1], window[:, 1:]

    def to(self, device: torch.device) -> Windows:
        """Return the text on `device`."""
        return Windows(self.tokens.to(device), self.length)

    @property
    def nbytes(self) -> int:
        """Bytes that the data need on the device."""
        return self.tokens.nbytes
