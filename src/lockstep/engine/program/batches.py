"""The global batches of a program's data, each replica with its own parts of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import tee
from typing import Any, NamedTuple

from lockstep.data.readers import IndexedReader, StreamReader, Wanted
from lockstep.engine.program.order import Order
from lockstep.engine.recipe.plan import Plan, cut
from lockstep.errors import RecipeError

Part = tuple[range, tuple[int, ...], int]
"""Shards, the samples in each of them, and the first sample."""


class Piece(NamedTuple):
    """Samples that go through the loss together."""

    shards: range
    """The shards that they belong to."""
    sizes: tuple[int, ...]
    """Samples in each shard."""
    content: Any
    """What the collate function made of the samples."""


@dataclass(kw_only=True, slots=True, eq=False)
class Batch:
    """One global batch: hand it to `Loop.step`."""

    epoch: int
    """Passes over the data before this one."""
    number: int
    """Batches before this one in its epoch."""
    samples: int
    """Samples of the global batch, over all replicas."""
    whole: bool
    """Whether it is as large as the other batches of its data: the last may be smaller."""
    pieces: list[Piece] = field(repr=False)
    """This replica's samples."""
    checks: list[Piece] = field(repr=False, default_factory=list)
    """Samples that this replica computes a second time, to compare the bits."""
    joined: tuple[Batch, ...] = field(repr=False, default=())
    """The batches that this one was joined from, if any."""
    used_in: int = field(repr=False, default=-1)
    """The iteration of the program in which a step used it."""

    def __iter__(self) -> Iterator[Any]:
        """Refuse to be unpacked: a batch is cut into shards, which only the loss sees."""
        raise RecipeError(
            "a batch of the loop cannot be unpacked, as in `for x, y in batches`: it is cut into "
            "shards. Write `for batch in batches: loop.step(batch, loss, optimizer)`; the loss "
            "gets what the collate function made of a shard, and can unpack that."
        )

    def __len__(self) -> int:
        """Return the number of samples in the global batch."""
        return self.samples

    def __getitem__(self, key: Any) -> Any:
        """Refuse an index, as in `batch["image"]`: only the loss sees the content."""
        raise RecipeError(
            f"batch[{key!r}]: a batch of the loop is cut into shards, and only the loss sees their "
            "content. Index it there; len(batch) is the number of samples."
        )


def join(batches: Sequence[Batch]) -> Batch:
    """Return several batches as one, whose contents are tuples, shard by shard."""
    return Batch(
        epoch=batches[0].epoch,
        number=batches[0].number,
        samples=sum(batch.samples for batch in batches),
        whole=all(batch.whole for batch in batches),
        pieces=_zipped([batch.pieces for batch in batches]),
        checks=_zipped([batch.checks for batch in batches]),
        joined=tuple(batches),
    )


def _zipped(columns: list[list[Piece]]) -> list[Piece]:
    rows = zip(*columns, strict=False)
    if len({tuple(piece.shards for piece in pieces) for pieces in columns}) == 1:
        return [Piece(r[0].shards, r[0].sizes, tuple(p.content for p in r)) for r in rows]
    found: dict[range, list[Piece | None]] = {}
    for number, pieces in enumerate(columns):
        for piece in pieces:
            found.setdefault(piece.shards, [None] * len(columns))[number] = piece
    return [
        Piece(
            shards,
            next(piece.sizes for piece in row if piece is not None),
            tuple(None if piece is None else piece.content for piece in row),
        )
        for shards, row in sorted(found.items(), key=lambda item: item[0].start)
    ]


class Division:
    """Cuts global batches for one replica."""

    def __init__(self, plan: Plan, rank: int, checked: Callable[[int, int], list[range]]) -> None:
        """`checked` returns the shards of (epoch, batch) that this replica computes to compare."""
        self.plan, self.own, self.checked = plan, plan.parts(rank), checked
        self._known: dict[int, list[Part]] = {}

    def __call__(self, epoch: int, batch: int, samples: int) -> list[Part]:
        """Return shards, sizes and first sample of each piece that has samples.

        Pieces to compare come last; `owned` tells how many come before them.
        """
        if samples not in self._known:
            if len(self._known) > 1000:
                self._known.clear()
            self._known[samples] = self._cut(samples, self.own)
        checked = self.checked(epoch, batch)
        own = self._known[samples]
        return own + self._cut(samples, checked) if checked else own

    def _cut(self, samples: int, pieces: list[range]) -> list[Part]:
        bounds = cut(samples, self.plan.shards)
        found = []
        for shards in pieces:
            sizes = tuple([bounds[shard + 1] - bounds[shard] for shard in shards])
            if sum(sizes):
                found.append((shards, sizes, bounds[shards.start]))
        return found

    def owned(self, samples: int) -> int:
        """Return how many pieces with samples this replica trains on."""
        return (
            len(self._known[samples])
            if samples in self._known
            else len(self._cut(samples, self.own))
        )


class Control:
    """The work of a loop before and after the body of a `for` over batches."""

    @property
    def epoch(self) -> int:
        """The epoch of the loop."""
        return 0

    def begin(self) -> None:
        """Restore a checkpoint, if that was asked for, before the first batch."""

    def over(self) -> bool:
        """Tell whether the run has come to its end."""
        return False

    def cut_short(self) -> None:
        """Note that the run ends before its last batch."""

    def before_body(self, *, disturbed: bool = True) -> None:
        """Set what the body depends on; `disturbed` says that reading has drawn random numbers."""

    def after_body(self, *, ends_epoch: bool = False) -> None:
        """Log, save and stop when it is time to."""


class Batches:
    """The global batches of some data. Iterate over it once in each epoch, as over a DataLoader."""

    def __init__(
        self,
        reader: IndexedReader | StreamReader,
        order: Order | None,
        division: Division,
        control: Control,
        global_batch: int,
        *,
        drop_last: bool = False,
    ) -> None:
        self.drop_last = drop_last
        self.reader, self.order, self.division, self.control = reader, order, division, control
        self.global_batch = global_batch
        self.passes, self.next = 0, 0
        """Passes over the data that were begun before this one, and batches handed out in it."""
        self.begun_in: int | None = None
        """The epoch of the loop in which this pass began."""
        self.restored = False
        self.left = False
        """Whether the program has left this pass by `break`."""
        self.head = ""
        """A hash of the first sample of the epoch, if the data are a stream."""

    def __len__(self) -> int:
        """Return the number of batches in an epoch; a stream has no length."""
        found = self.order.length() if self.order is not None else None
        if found is None:
            raise TypeError("the number of batches is not known before they are read")
        return found

    def __iter__(self) -> Iterator[Batch]:
        """Yield the batches of the next epoch, from where a resumed run stopped."""
        control = self.control
        control.begin()
        if self.restored and self.begun_in == control.epoch:
            self.restored = False
            if self.left:
                # The program left this pass before it was stopped.
                return
        elif self.begun_in is not None:
            self.passes, self.next, self.restored = self.passes + 1, 0, False
        self.left = False
        self.begun_in = control.epoch
        # Only the first batch of whole tensors needs it: every step leaves the generators seeded.
        disturbed = True
        quiet = isinstance(self.reader, IndexedReader) and self.reader.columns is not None
        for batch in self._epoch(self.passes, self.next):
            control.after_body()
            if control.over():
                control.cut_short()
                return
            self.next += 1
            control.before_body(disturbed=disturbed)
            try:
                yield batch
            except GeneratorExit:
                self.left = True
                raise
            disturbed = not quiet
        control.after_body(ends_epoch=True)

    def _epoch(self, epoch: int, start: int) -> Iterator[Batch]:
        if isinstance(self.reader, StreamReader):
            cutter = partial(self.division, epoch)
            head = self.head if start else ""
            stretches = self.reader.stretches(epoch, start, self.global_batch, cutter, head)
            for number, stretch in enumerate(stretches, start):
                if self.drop_last and stretch.samples < self.global_batch:
                    return
                self.head = stretch.head
                pieces = [Piece(*content) for content in stretch.contents]
                yield self._batch(epoch, number, stretch.samples, pieces)
            return
        # Twice the same plans: a reader runs ahead of the batches.
        plans, ahead = tee(self._plans(epoch, start))
        contents = self.reader.contents(
            Wanted(epoch, indices[first : first + sum(sizes)], number, shards.start)
            for number, indices, _, parts in ahead
            for shards, sizes, first in parts
        )
        for number, _, samples, parts in plans:
            pieces = [Piece(shards, sizes, next(contents)) for shards, sizes, _ in parts]
            yield self._batch(epoch, number, samples, pieces)

    def _plans(self, epoch: int, start: int) -> Iterator[tuple[int, Any, int, list[Part]]]:
        """Yield the number of each batch, its samples, how many they are, and their parts."""
        assert self.order is not None
        for number, indices in enumerate(self.order.batches(epoch, start), start):
            samples = len(indices)
            yield number, indices, samples, self.division(epoch, number, samples)

    def _batch(self, epoch: int, number: int, samples: int, pieces: list[Piece]) -> Batch:
        owned = self.division.owned(samples)
        return Batch(
            epoch=epoch,
            number=number,
            samples=samples,
            whole=samples >= self.global_batch,
            pieces=pieces[:owned],
            checks=pieces[owned:],
        )

    def state(self) -> dict[str, Any]:
        """Return the position, for a checkpoint."""
        place = {"passes": self.passes, "next": self.next, "begun_in": self.begun_in}
        return place | {"head": self.head, "left": self.left}

    def load(self, state: dict[str, Any]) -> None:
        """Continue at a saved position."""
        self.passes, self.next = state["passes"], state["next"]
        self.begun_in, self.restored, self.head = state["begun_in"], True, state["head"]
        self.left = state.get("left", False)
