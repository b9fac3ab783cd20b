"""The digits as rows of 64 numbers, for the small models of the labs."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from lockstep import data
from lockstep.world import gpu_count

PIXELS, CLASSES = 64, 10


@dataclass(frozen=True, kw_only=True)
class Samples:
    """Inputs and targets for training and test."""

    inputs: Tensor
    targets: Tensor
    test_inputs: Tensor
    test_targets: Tensor

    def __len__(self) -> int:
        return len(self.targets)

    def first_batches(self, batch: int) -> Samples:
        """Return only the training samples that fill whole batches."""
        whole = len(self) // batch * batch
        return replace(self, inputs=self.inputs[:whole], targets=self.targets[:whole])


def digits(device: str | None = None, dtype: torch.dtype = torch.float32) -> Samples:
    """Return all digits, on a GPU if there is one."""
    found = data.digits()
    place = device or ("cuda" if gpu_count() else "cpu")

    def rows(inputs: Tensor) -> Tensor:
        assert found.prepare is not None
        return found.prepare(inputs).flatten(1).to(place, dtype)

    return Samples(
        inputs=rows(found.train.inputs),
        targets=found.train.targets.to(place),
        test_inputs=rows(found.test.inputs),
        test_targets=found.test.targets.to(place),
    )
