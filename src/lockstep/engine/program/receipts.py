"""Hash the gradients of a program's steps, so that it costs nearly nothing."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from lockstep.engine.checks.fingerprint import fingerprint, row_fingerprints
from lockstep.engine.group import Group
from lockstep.engine.program.tree import Gradients, present
from lockstep.engine.run.receipts import Receipt, ReceiptFile

FEW = 1 << 20
"""Gradients of fewer elements are hashed as a whole in one of `EVERY` steps, to cost nothing."""
EVERY, SMALL = 64, 1 << 12


class Receipts:
    """The receipts of a program's steps. They wait on the device until a control point."""

    def __init__(self, path: Path, group: Group) -> None:
        self.file = ReceiptFile(path, group)
        self.waiting: list[tuple[int, int, Tensor, Tensor]] = []
        """Receipts that are still on the device."""
        self._known: dict[tuple[int, ...], list[int]] = {}

    def note(self, step: int, call: int, gradients: Gradients, table: Tensor) -> None:
        """Keep the receipt of a step on the device."""
        found = present(gradients)
        if call % EVERY and (small := self._small(found)):
            # One small parameter in turn: what differs in one is in all of them a step later.
            # A copy, hashed later with others: clipping changes the gradient in its place.
            self.waiting.append((step, call, found[small[call % len(small)]].clone(), table))
            return
        kinds: dict[torch.dtype, list[Tensor]] = {}
        for gradient in found:
            kinds.setdefault(gradient.dtype, []).append(gradient.reshape(-1))
        nothing = torch.zeros((), dtype=torch.int64, device=table.device)
        hashes = [fingerprint(torch.cat(parts)) for parts in kinds.values()]
        self.waiting.append((step, call, torch.stack([nothing, *hashes]).sum(), table))

    def _small(self, found: list[Tensor]) -> list[int]:
        """Return which gradients are hashed in turn; none if they are too many to hash them all."""
        sizes = tuple(map(Tensor.numel, found))
        if sizes not in self._known:
            self._known[sizes] = (
                [number for number, size in enumerate(sizes) if size <= SMALL]
                if sum(sizes) < FEW
                else []
            )
        return self._known[sizes]

    def settle(self) -> None:
        """Read the receipts from the device, compare them with other replicas', and write them."""
        if not self.waiting:
            return
        hashes = _hashes([found for _, _, found, _ in self.waiting])
        sums = torch.stack([table for _, _, _, table in self.waiting]).sum(2)
        losses = (sums[:, 0] / sums[:, 1].clamp(min=1e-300)).tolist()
        places = [(step, call) for step, call, _, _ in self.waiting]
        self.waiting.clear()
        rows = zip(places, hashes, losses, strict=True)
        self.file.settle([Receipt(*place, *row) for place, *row in rows])

    def forget_after(self, calls: int) -> None:
        """Drop the receipts of steps from number `calls` on: a resumed run takes them again."""
        self.file.forget_after(calls)


def _hashes(found: list[Tensor]) -> list[int]:
    """Return hashes as numbers, and hash small gradients of one shape together."""
    hashes = [0] * len(found)
    kinds: dict[tuple[torch.Size, torch.dtype], list[int]] = {}
    for number, tensor in enumerate(found):
        kinds.setdefault((tensor.shape, tensor.dtype), []).append(number)
    for (_, kind), numbers in kinds.items():
        rows = torch.stack([found[number] for number in numbers])
        if kind != torch.int64:
            # Not a hash yet, but a gradient, of any shape.
            rows = row_fingerprints(rows.flatten(1) if rows.dim() > 1 else rows[:, None])
        for number, value in zip(numbers, rows.tolist(), strict=True):
            hashes[number] = value
    return hashes
