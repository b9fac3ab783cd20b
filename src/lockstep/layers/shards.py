"""The shards of the batch that is in the model now, and the random numbers of each shard.

A shard is a fixed slice of the global batch. Layers that ask `Shards` which rows belong to which
shard compute the same values on any number of replicas.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from lockstep.errors import RecipeError
from lockstep.keys import GOLDEN, mixed, shifted, signed, signed_key

_DRAW = 0xD6E8FEB86659FD93
"""An odd number without a pattern. Distinguishes one draw of a step from the next."""
_ROUND = 0xA24BAED4963EE407
"""An odd number without a pattern. Distinguishes one batch of a step from the next."""
_LANE = 16
"""Random bits for each place: four places share a hash of 64 bits."""
_LEVELS = 1 << _LANE


class Shards:
    """The shards of the batch that is now in the model, and their random numbers.

    A random number is a hash of (seed, step, shard, place in the shard), not the next one of a
    generator. So it is the same on every replica, in any order, compiled or not.
    """

    def __init__(
        self,
        local: int = 1,
        device: torch.device | str = "cpu",
        *,
        first: int = 0,
        seed: int = 0,
        channels_last: bool = False,
    ) -> None:
        """Describe a replica that owns `local` shards from number `first` on, on `device`.

        With `channels_last`, random masks of images have that memory layout too.
        """
        self.local, self.channels_last = local, channels_last
        self.first, self.seed = first, seed
        own = [signed_key(seed, shard, "shard") for shard in range(first, first + local)]
        self.keys = torch.tensor(own, dtype=torch.int64, device=device)
        self.step = torch.zeros((), dtype=torch.int64, device=device)
        self.own = self.keys
        self.rows = range(local)
        self.sizes: tuple[int, ...] = (1,) * local
        self.counts = True
        self.draws, self.rounds = 0, 1
        self.again = False
        """Whether a checkpoint of activations computes the layers a second time now."""
        self.piece_rows = list(self.rows)
        """The local shard of each piece of the batch."""
        self.lone = False
        """Whether a batch norm got a shard with one value per channel, and made zeros of it."""
        self._rounds: dict[tuple[int, int], Tensor] = {}
        self.random = False
        """Whether any layer draws random numbers."""

    def __deepcopy__(self, memo: object) -> Shards:
        """Return the same object: a copy of a model works on the batch that is in it now."""
        return self

    def turn_to(self, step: int) -> None:
        """Begin a step: it draws other random numbers than the step before."""
        if self.random:
            self.step.fill_(self.step_key(step))

    @staticmethod
    def step_key(step: int) -> int:
        """Return the key that distinguishes the random numbers of a step from those of others."""
        return signed_key(step, "step")

    def enter(
        self,
        rows: range,
        sizes: Sequence[int],
        counts: bool = True,
        round: int = 0,
        rounds: int = 1,
    ) -> None:
        """Announce a batch: its local shards, their sizes, and its round within the step.

        Several `rounds` may come at once: all of the first shard, then all of the next. If
        `counts` is false, the batch does not change running statistics.
        """
        self.rows, self.sizes, self.counts = rows, tuple(sizes), counts
        self.draws, self.rounds = 0, rounds
        self.piece_rows = [row for row in rows for _ in range(rounds)]
        self.own = self.keys[rows.start : rows.stop]
        if self.random and round + rounds > 1:
            self.own = (self.own[:, None] ^ self._of_rounds(round, rounds)).flatten()

    def visit(self, shards: range, sizes: Sequence[int]) -> None:
        """Announce shards that any replica may own, to compute them a second time.

        They draw what their owner draws, and change no running statistics.
        """
        self.rows, self.sizes, self.counts = range(len(shards)), tuple(sizes), False
        self.draws, self.rounds, self.piece_rows = 0, 1, list(self.rows)
        own = [signed_key(self.seed, shard, "shard") for shard in shards]
        self.own = self.keys.new_tensor(own)

    def _of_rounds(self, first: int, rounds: int) -> Tensor:
        """Return keys that distinguish the random numbers of these rounds.

        They are a tensor, not numbers, so that a compiled step does not depend on their values.
        """
        if (first, rounds) not in self._rounds:
            values = [signed(number * _ROUND) for number in range(first, first + rounds)]
            self._rounds[first, rounds] = torch.tensor(values, device=self.keys.device)
        return self._rounds[first, rounds]

    @property
    def even(self) -> bool:
        """Whether the batch has several shards, all of the same size."""
        return len(self.sizes) > 1 and len(set(self.sizes)) == 1

    def keep(self, shape: Sequence[int], share: float) -> Tensor:
        """Return a new mask of this shape in which about `share` of the places are True."""
        if not self.again and not torch.compiler.is_compiling() and _in_backward():
            raise RecipeError(
                "a dropout layer is computed again during backward, and not by "
                "torch.utils.checkpoint: lockstep would draw another mask. Use "
                "torch.utils.checkpoint, or F.dropout in this place."
            )
        self.draws += 1
        bases = self.own ^ self.step ^ signed(self.draws * _DRAW)
        total = math.prod(shape)
        if self.even or len(self.sizes) == 1:
            return _bits(bases, total // len(self.sizes), share).view(*shape)
        each = total // sum(self.sizes)
        pieces = [_bits(bases[n : n + 1], s * each, share) for n, s in enumerate(self.sizes)]
        return torch.cat(pieces, 1).view(*shape)

    def check(self, x: Tensor) -> int:
        """Return the number of rows of `x` for each sample."""
        parts, rest = divmod(len(x), sum(self.sizes))
        if rest and len(self.sizes) > 1:
            raise ValueError(
                f"a layer got {len(x)} rows for {sum(self.sizes)} samples: batch norm and dropout "
                "per shard need the samples in the first dimension"
            )
        return parts

    def cut(self, x: Tensor) -> list[tuple[int, Tensor]]:
        """Return (row, slice) for each shard that has samples; a sample may have several rows."""
        if len(self.sizes) == 1:
            return [(self.rows[0], x)]
        parts = self.check(x)
        sizes = self.sizes if parts == 1 else [size * parts for size in self.sizes]
        pieces = zip(self.piece_rows, x.split(sizes), strict=True)
        return [(row, piece) for row, piece in pieces if len(piece)]


def _in_backward() -> bool:
    return torch._C._current_graph_task_id() != -1


def possible_share(share: float) -> float:
    """Return the share nearest to `share` that random bits can give."""
    return min(max(round(share * _LEVELS), 1), _LEVELS - 1) / _LEVELS


def _bits(bases: Tensor, count: int, share: float) -> Tensor:
    """Return a mask of (bases, count) places, each True with probability `share`."""
    lanes = 64 // _LANE
    number = torch.arange(1, -(-count // lanes) + 1, device=bases.device)
    # In this order: a compiler would fold a product of places into addresses, which overflow.
    hashes = mixed((number[None, :] ^ bases[:, None]) * signed(GOLDEN))
    # The lower half of a product is not well mixed: fold the upper half in.
    hashes = hashes ^ shifted(hashes, 32)
    limit = round(share * _LEVELS)
    if torch.compiler.is_compiling():
        # A compiler does this without a pass through memory, and cannot view the bits otherwise.
        places = torch.arange(0, 64, _LANE, device=bases.device)
        cut = (hashes[:, :, None] >> places & (_LEVELS - 1)) ^ (_LEVELS // 2)
        return cut.flatten(1)[:, :count] < limit
    return hashes.view(torch.int16)[:, :count] < limit - _LEVELS // 2
