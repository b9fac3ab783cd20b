"""Receipts: one hash of the gradient for each step, by which runs can be compared step by step."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from lockstep.engine.checks.fingerprint import fingerprint, row_fingerprints
from lockstep.engine.group import Group
from lockstep.engine.program.tree import Gradients, present
from lockstep.engine.run.atomic_write import replace_file
from lockstep.errors import RunError

FEW = 1 << 20
"""Gradients of fewer elements are hashed as a whole in one of `EVERY` steps, to cost nothing."""
EVERY, SMALL = 64, 1 << 12
_FORMAT = struct.Struct("<qqqd")


class Receipt(NamedTuple):
    """What a step leaves to be compared."""

    step: int
    """Batches before this one."""
    call: int
    """Steps of all optimizers before this one."""
    gradient: int
    """A hash of the gradient that the optimizer was given."""
    loss: float
    """The mean loss of the global batch."""


class Receipts:
    """The receipts of a run, in a file that the first replica writes."""

    def __init__(self, path: Path, group: Group) -> None:
        self.path, self.group = path, group
        self.waiting: list[tuple[int, int, Tensor, Tensor]] = []
        """Receipts that are still on the device."""

    def note(self, step: int, call: int, gradients: Gradients, table: Tensor) -> None:
        """Keep the receipt of a step on the device."""
        found = present(gradients)
        few = sum([gradient.numel() for gradient in found]) < FEW
        if few and call % EVERY and (small := [g for g in found if g.numel() <= SMALL]):
            # One small parameter in turn: what differs in one is in all of them a step later.
            # A copy, hashed later with others: clipping changes the gradient in its place.
            one = small[call % len(small)].detach().reshape(-1).clone()
            self.waiting.append((step, call, one, table))
            return
        kinds: dict[torch.dtype, list[Tensor]] = {}
        for gradient in found:
            kinds.setdefault(gradient.dtype, []).append(gradient.reshape(-1))
        nothing = torch.zeros((), dtype=torch.int64, device=table.device)
        hashes = [fingerprint(torch.cat(parts)) for parts in kinds.values()]
        self.waiting.append((step, call, torch.stack([nothing, *hashes]).sum(), table))

    def settle(self) -> None:
        """Compare the receipts of all replicas, and write those of the first."""
        if not self.waiting:
            return
        hashes = _hashes([found for _, _, found, _ in self.waiting])
        sums = torch.stack([table for _, _, _, table in self.waiting]).sum(2)
        losses = (sums[:, 0] / sums[:, 1].clamp(min=1e-300)).tolist()
        places = [(step, call) for step, call, _, _ in self.waiting]
        self.waiting.clear()
        every = self.group.objects(hash(tuple(hashes)))
        if len(set(every)) > 1:
            raise RunError(
                f"the replicas used different gradients in steps {places[0][0]} to "
                f"{places[-1][0]}: replica {_odd(every)} differs. A device or a link may have made "
                "an error."
            )
        if self.group.world.is_first:
            rows = zip(places, hashes, losses, strict=True)
            content = b"".join(_FORMAT.pack(*place, *row) for place, *row in rows)
            with self.path.open("ab") as file:
                file.write(content)

    def forget_after(self, calls: int) -> None:
        """Drop the receipts of steps from number `calls` on: a resumed run takes them again."""
        if self.group.world.is_first and self.path.exists():
            rows = [r for r in read(self.path) if r.call < calls]
            replace_file(self.path, b"".join(_FORMAT.pack(*row) for row in rows))


def _hashes(found: list[Tensor]) -> list[int]:
    """Return hashes as numbers, and hash small gradients of one shape together."""
    hashes = [0] * len(found)
    kinds: dict[tuple[torch.Size, torch.dtype], list[int]] = {}
    for number, tensor in enumerate(found):
        kinds.setdefault((tensor.shape, tensor.dtype), []).append(number)
    for (shape, _), numbers in kinds.items():
        rows = torch.stack([found[number] for number in numbers])
        if shape:
            rows = row_fingerprints(rows)
        for number, value in zip(numbers, rows.tolist(), strict=True):
            hashes[number] = value
    return hashes


def read(path: Path) -> list[Receipt]:
    """Read the receipts of a run; leave out one that a crash cut short."""
    content = path.read_bytes()
    whole = len(content) // _FORMAT.size * _FORMAT.size
    return [Receipt(*row) for row in _FORMAT.iter_unpack(content[:whole])]


def _odd(values: list[int]) -> int:
    """Return the first replica that differs from the most common value."""
    common = max(values, key=values.count)
    return next(n for n, value in enumerate(values) if value != common)
