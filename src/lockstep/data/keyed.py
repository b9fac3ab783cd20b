"""Draw random numbers by sample and epoch, never by the process that draws them.

The generator is counter-based: the number for a key is a hash of the key. Sample 1234 in epoch 7
gets the same numbers on every replica, in every worker and after a resume, and all samples of a
batch draw at once on the device.
"""

from __future__ import annotations

import random
from typing import Any

import numpy
import torch
from torch import Tensor

from lockstep.data.nested import digest
from lockstep.keys import GOLDEN, mixed, signed, signed_key

_seed_python = super(random.Random, random._inst).seed


def seed_generators(number: int, device: torch.device | None = None) -> None:
    """Seed Python's, NumPy's and torch's own generators: whatever user code draws from."""
    # What random.seed does with a whole number, in half the time: this runs for every shard.
    _seed_python(number)
    random._inst.gauss_next = None  # type: ignore[attr-defined]
    numpy.random.seed(number & 0xFFFFFFFF)
    # Not torch.manual_seed: before CUDA is used, it notes a stack trace at every call.
    torch.default_generator.manual_seed(number)
    if device is not None and device.type == "cuda":
        torch.cuda.default_generators[device.index or 0].manual_seed(number)


def host_states() -> tuple[Any, ...]:
    """Return the states of the generators that code on the host draws from."""
    numpys = digest(numpy.random.get_state(legacy=False))
    return random.getstate(), numpys, digest(torch.get_rng_state())


class EpochKeys:
    """The part of the keys that all samples of one epoch share, in device memory.

    Later epochs replay a step that was recorded as a CUDA graph. The step must read the epoch from
    memory, because a number would be compiled in.
    """

    def __init__(self, seed: int, device: torch.device | str = "cpu") -> None:
        self.seed, self.device = seed, device
        self.epoch = 0
        self.number = torch.zeros((), dtype=torch.int64, device=device)
        """The epoch as a tensor."""
        self.changing: dict[str, Tensor] = {}
        self.lasting: dict[str, Tensor] = {}

    def turn_to(self, epoch: int) -> None:
        """Change the keys to those of `epoch`."""
        if epoch == self.epoch:
            return
        self.epoch = epoch
        self.number.fill_(epoch)
        for purpose, base in self.changing.items():
            base.fill_(_base(self.seed, epoch, purpose))

    def base(self, purpose: str, every_epoch: bool = True) -> Tensor:
        """Return the common part of the numbers that are drawn for `purpose`."""
        bases = self.changing if every_epoch else self.lasting
        if purpose not in bases:
            base = torch.zeros((), dtype=torch.int64, device=self.device)
            epoch = self.epoch if every_epoch else None
            bases[purpose] = base.fill_(_base(self.seed, epoch, purpose))
        return bases[purpose]


class SampleKeys:
    """Random numbers for a batch of samples in one epoch, keyed per sample."""

    def __init__(self, seed: int, epoch: int | EpochKeys, indices: Tensor) -> None:
        """Take the numbers of the samples in the data set, on the device of the batch."""
        self.seed, self.indices = seed, indices
        self.epoch = epoch.number if isinstance(epoch, EpochKeys) else epoch
        self._epoch = epoch

    def uniform(self, purpose: str, every_epoch: bool = True) -> Tensor:
        """Draw one number in [0, 1) for each sample; another `purpose` draws other numbers.

        The numbers change with every epoch, unless `every_epoch` is false.
        """
        if isinstance(self._epoch, EpochKeys):
            base: int | Tensor = self._epoch.base(purpose, every_epoch)
        else:
            base = _base(self.seed, self._epoch if every_epoch else None, purpose)
        x = mixed((self.indices + 1) * signed(GOLDEN) ^ base)
        # A float32 holds 24 bits without rounding up to 1.
        return (x >> 40 & 0xFFFFFF).to(torch.float32) * 2.0**-24

    def integers(self, purpose: str, high: int) -> Tensor:
        """Draw one whole number in [0, high) for each sample."""
        return (self.uniform(purpose) * high).long()


def _base(seed: int, epoch: int | None, purpose: str) -> int:
    return signed_key(seed, purpose) if epoch is None else signed_key(seed, epoch, purpose)


States = tuple[object, ...]


def generator_states() -> States:
    """Return the states of Python's, NumPy's and torch's own generators on the CPU."""
    return random.getstate(), numpy.random.get_state(), torch.get_rng_state()


def restore_generators(states: States) -> None:
    """Set the generators back to what `generator_states` returned."""
    own, numpys, torchs = states
    random.setstate(own)  # type: ignore[arg-type]
    numpy.random.set_state(numpys)  # type: ignore[arg-type]
    torch.set_rng_state(torchs)  # type: ignore[arg-type]
