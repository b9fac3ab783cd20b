"""Randomness keyed by what it belongs to, never by the process that draws it.

A counter-based generator: the number for a key is a hash of the key. So sample 1234 in epoch 7 gets
the same numbers on every replica, in every worker and after a resume, and all samples of a batch
draw at once on the device.
"""

from __future__ import annotations

import torch
from torch import Tensor

from lockstep.keys import GOLDEN, mixed, signed, signed_key


class EpochKeys:
    """What the keys of all samples have in common in one epoch, in memory of the device.

    A step that was recorded as a CUDA graph is replayed in later epochs: there the epoch must be
    something to read, not a number that was compiled in.
    """

    def __init__(self, seed: int, device: torch.device | str = "cpu") -> None:
        self.seed, self.device = seed, device
        self.epoch = 0
        self.number = torch.zeros((), dtype=torch.int64, device=device)
        """The epoch itself."""
        self.changing: dict[str, Tensor] = {}
        self.lasting: dict[str, Tensor] = {}

    def turn_to(self, epoch: int) -> None:
        """From here on the keys are those of `epoch`."""
        if epoch == self.epoch:
            return
        self.epoch = epoch
        self.number.fill_(epoch)
        for purpose, base in self.changing.items():
            base.fill_(_base(self.seed, epoch, purpose))

    def base(self, purpose: str, every_epoch: bool = True) -> Tensor:
        """The common part of the numbers that are drawn for `purpose`."""
        bases = self.changing if every_epoch else self.lasting
        if purpose not in bases:
            base = torch.zeros((), dtype=torch.int64, device=self.device)
            epoch = self.epoch if every_epoch else None
            bases[purpose] = base.fill_(_base(self.seed, epoch, purpose))
        return bases[purpose]


class SampleKeys:
    """The keys of a batch of samples in one epoch."""

    def __init__(self, seed: int, epoch: int | EpochKeys, indices: Tensor) -> None:
        """`indices` are the samples' numbers in the data set, on the device of the batch."""
        self.seed, self.indices = seed, indices
        self.epoch = epoch.number if isinstance(epoch, EpochKeys) else epoch
        self._epoch = epoch

    def uniform(self, purpose: str, every_epoch: bool = True) -> Tensor:
        """One number in [0, 1) for each sample; another `purpose` draws other numbers.

        They are new in every epoch, or with `every_epoch` false the same in all.
        """
        if isinstance(self._epoch, EpochKeys):
            base: int | Tensor = self._epoch.base(purpose, every_epoch)
        else:
            base = _base(self.seed, self._epoch if every_epoch else None, purpose)
        x = mixed((self.indices + 1) * signed(GOLDEN) ^ base)
        # 24 bits are what a float32 holds without rounding up to 1.
        return (x >> 40 & 0xFFFFFF).to(torch.float32) * 2.0**-24

    def integers(self, purpose: str, high: int) -> Tensor:
        """One whole number in [0, high) for each sample."""
        return (self.uniform(purpose) * high).long()


def _base(seed: int, epoch: int | None, purpose: str) -> int:
    return signed_key(seed, purpose) if epoch is None else signed_key(seed, epoch, purpose)
