"""The global batches of an epoch as lists of sample numbers, the same on every replica."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from typing import Any, Protocol

import torch
from torch import Tensor

from lockstep.data.keyed import seed_generators
from lockstep.engine.group import Group
from lockstep.engine.sampler import GlobalOrder
from lockstep.errors import DataError, LockstepError, raised
from lockstep.keys import key


class Order(Protocol):
    """Decides which samples form which batch."""

    def batches(self, epoch: int, start: int) -> Iterator[list[int] | Tensor]:
        """Yield the sample numbers of each batch of an epoch, from batch `start` on."""
        ...

    def length(self) -> int | None:
        """Return the number of batches in an epoch, if it is known."""
        ...


class Shuffled:
    """All samples once per epoch, in an order that comes from (seed, epoch), or one by one."""

    def __init__(
        self,
        size: int,
        global_batch: int,
        seed: int,
        device: torch.device,
        *,
        shuffle: bool,
        drop_last: bool = False,
    ) -> None:
        """Yield sample numbers on `device`."""
        self.order = GlobalOrder(size, global_batch, seed)
        self.shuffle, self.device = shuffle, device
        self.end = size - size % global_batch if drop_last else size
        """How many samples of an epoch are used."""

    def batches(self, epoch: int, start: int) -> Iterator[Tensor]:
        """Yield the sample numbers of each batch."""
        order = self.order
        every = torch.arange(order.size, device=self.device)
        if self.shuffle:
            every = order.epoch(epoch, self.device)
        for first in range(start * order.global_batch, self.end, order.global_batch):
            yield every[first : first + order.global_batch]

    def length(self) -> int:
        """Return the number of batches, including the last, which may be smaller."""
        return -(-self.end // self.order.global_batch)


class Sampled:
    """Batches that the user's sampler forms, or samples in its order, cut into batches."""

    def __init__(
        self,
        sampler: Any,
        global_batch: int | None,
        seed: int,
        group: Group,
        *,
        drop_last: bool = False,
    ) -> None:
        """Take whole batches from the sampler, or, with `global_batch`, single samples."""
        self.drop_last = drop_last
        self.sampler, self.global_batch, self.seed, self.group = sampler, global_batch, seed, group
        self.known: tuple[int, list[list[int]]] | None = None

    def batches(self, epoch: int, start: int) -> Iterator[list[int]]:
        """Yield the sample numbers of each batch."""
        yield from self._epoch(epoch)[start:]

    def length(self) -> int | None:
        """Return the number of batches in the last epoch that was begun."""
        return len(self.known[1]) if self.known else None

    def _epoch(self, epoch: int) -> list[list[int]]:
        if self.known is None or self.known[0] != epoch:
            # The sampler draws the same numbers on every replica and after a resume.
            number = key(self.seed, epoch, "sampler")
            seed_generators(number)
            owners: list[Any] = [self.sampler, getattr(self.sampler, "sampler", None)]
            for owner in owners:
                if isinstance(generator := getattr(owner, "generator", None), torch.Generator):
                    generator.manual_seed(number)
                if hasattr(owner, "set_epoch"):
                    owner.set_epoch(epoch)
            self.known = (epoch, self._listed())
            self._compare()
        return self.known[1]

    def _listed(self) -> list[list[int]]:
        kind = type(self.sampler).__name__
        try:
            if self.global_batch is None:
                return [_numbers(batch, kind) for batch in self.sampler]
            every = _numbers(self.sampler, kind)
        except LockstepError:
            raise
        except Exception as error:
            raise DataError(raised(f"the sampler {kind}", error)) from error
        size = self.global_batch
        end = len(every) - len(every) % size if self.drop_last else len(every)
        return [every[first : first + size] for first in range(0, end, size)]

    def _compare(self) -> None:
        assert self.known is not None
        digest = hashlib.sha256(repr(self.known[1]).encode()).hexdigest()
        if len(set(self.group.objects(digest))) > 1:
            raise DataError(
                f"{type(self.sampler).__name__} gives different samples on different replicas. It "
                "may draw from a generator of its own, or divide the data by rank, as "
                "DistributedSampler does: lockstep divides each batch itself. Pass a sampler for "
                "one GPU."
            )


def _numbers(batch: Iterable[Any], kind: str) -> list[int]:
    if not isinstance(batch, Iterable):
        raise DataError(
            f"{kind} yields single samples ({batch!r}), not batches. Pass it as sampler=, or wrap "
            "it in torch.utils.data.BatchSampler."
        )
    return [int(index) for index in batch]
