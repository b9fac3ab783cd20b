"""Receipts: one hash of the gradient for each step, by which runs can be compared step by step."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from lockstep.engine.group import Group
from lockstep.engine.run.atomic_write import replace_file
from lockstep.errors import RunError

_FORMAT = struct.Struct("<qqqd")


class Receipt(NamedTuple):
    """The record of one step, to compare it with another run."""

    step: int
    """Batches before this one."""
    call: int
    """Steps of all optimizers before this one."""
    gradient: int
    """A hash of the gradient, or of a part of it, that the optimizer received."""
    loss: float
    """The mean loss of the global batch; NaN if the run did not note it."""


class ReceiptFile:
    """The receipts of a run, in a file that the first replica writes."""

    def __init__(self, path: Path, group: Group) -> None:
        self.path, self.group = path, group

    def settle(self, receipts: Sequence[Receipt]) -> None:
        """Compare the receipts of all replicas, and write those of the first."""
        if not receipts:
            return
        every = self.group.objects(hash(tuple(receipt.gradient for receipt in receipts)))
        if len(set(every)) > 1:
            raise RunError(
                f"the replicas used different gradients in steps {receipts[0].step} to "
                f"{receipts[-1].step}: replica {_odd(every)} differs. A device or a link may have "
                "made an error."
            )
        if self.group.world.is_first:
            with self.path.open("ab") as file:
                file.write(b"".join(_FORMAT.pack(*receipt) for receipt in receipts))

    def forget_after(self, calls: int) -> None:
        """Drop the receipts of steps from number `calls` on: a resumed run takes them again."""
        if self.group.world.is_first and self.path.exists():
            rows = [receipt for receipt in read(self.path) if receipt.call < calls]
            replace_file(self.path, b"".join(_FORMAT.pack(*row) for row in rows))


def read(path: Path) -> list[Receipt]:
    """Read the receipts of a run; leave out one that a crash cut short."""
    content = path.read_bytes()
    whole = len(content) // _FORMAT.size * _FORMAT.size
    return [Receipt(*row) for row in _FORMAT.iter_unpack(content[:whole])]


def _odd(values: list[int]) -> int:
    """Return the first replica that differs from the most common value."""
    common = max(values, key=values.count)
    return next(n for n, value in enumerate(values) if value != common)
