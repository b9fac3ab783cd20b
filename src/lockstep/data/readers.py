"""Read the samples of a batch, of any structure, with every random number keyed.

A reader turns requests into contents: what a collate function makes of some samples. The generators
of Python, NumPy and torch are seeded before each sample and before each call of collate, so that
neither the process that reads nor what it read before changes a content.
"""

from __future__ import annotations

import os
import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset, TensorDataset
from torch.utils.data._utils import worker

from lockstep.data.dataset import Tensors
from lockstep.data.keyed import generator_states, restore_generators, seed_generators
from lockstep.data.nested import digest, move, rows_in, stack, tensors_in
from lockstep.data.workers import start_worker
from lockstep.errors import DataError, LockstepError, raised
from lockstep.keys import key
from lockstep.processes.data_worker import WorkerContext

Collate = Callable[[list[Any]], Any]
_FIRST_HASHED = 16
"""Calls of a collate function after which all that it returned is hashed."""


class Wanted(NamedTuple):
    """The samples that one content is made of."""

    epoch: int
    indices: Sequence[int] | Tensor
    batch: int
    """The number of their batch in the epoch."""
    shard: int
    """The first shard that they belong to."""


class Collator:
    """Makes a content of samples, and refuses one that lacks some of them."""

    def __init__(self, collate: Collate | None, seed: int, *, may_drop: bool = False) -> None:
        self.collate, self.seed, self.may_drop = collate, seed, may_drop
        self._given: list[tuple[weakref.ref[Tensor], int, str]] = []
        """The tensors that the collate function returned last, the places of their memory, and
        hashes of those that may be overwritten."""
        self._hashed = _FIRST_HASHED

    def __call__(self, samples: list[Any], epoch: int, batch: int, shard: int) -> Any:
        """Return what the collate function makes of the samples."""
        seed_generators(key(self.seed, epoch, batch, shard, "collate"))
        try:
            content = (self.collate or stack)(samples)
        except LockstepError:
            raise
        except Exception as error:
            if self.collate is None:
                kind = type(samples[0]).__name__
                raise DataError(
                    f"the samples ({kind}) cannot be stacked into one batch: {error}. Pass "
                    "collate=, a function that makes a batch of a list of samples, for example "
                    "with torch.nn.utils.rnn.pad_sequence."
                ) from error
            raise DataError(raised(f"the collate function {_name(self.collate)}", error)) from error
        rows = rows_in(content)
        if rows is not None and rows < len(samples) and not self.may_drop:
            raise DataError(
                f"the collate function {_name(self.collate)} made {rows} rows of {len(samples)} "
                "samples: it drops samples, which nobody would notice. Drop them from the data "
                "set, or pass may_drop=True to loop.batches if that is what you want."
            )
        if self.collate is not None:
            self._refuse_overwritten(content)
        return content

    def _refuse_overwritten(self, content: Any) -> None:
        """Refuse a collate function that writes into what it returned before.

        lockstep reads all shards of a batch before it computes the first one.
        """
        now = [
            (t, t.untyped_storage().data_ptr())
            for t in tensors_in(content)
            if t.layout is torch.strided and t.device.type == "cpu"
        ]
        alive = {
            place: (old, before) for ref, place, before in self._given if (old := ref()) is not None
        }
        again = {place for _, place in now if place in alive}
        # A loss may change its batch in place: only memory that comes again is compared.
        if any(before and digest(old) != before for old, before in map(alive.__getitem__, again)):
            raise DataError(
                f"the collate function {_name(self.collate)} writes into memory that it returned "
                "before: an earlier shard of the batch, which is still to be computed, has "
                "changed. Return new tensors each time, for example with .clone()."
            )
        # Memory that comes twice may be a constant, such as a mask: the next call will tell.
        self._given = [
            (weakref.ref(t), place, digest(t) if self._hashed > 0 or place in again else "")
            for t, place in now
        ]
        self._hashed -= 1


def _name(function: Any) -> str:
    return getattr(function, "__name__", type(function).__name__)


class IndexedReader:
    """Reads a data set with an index, in this process or in workers."""

    def __init__(
        self,
        data: Any,
        collate: Collator,
        seed: int,
        device: torch.device,
        workers: int,
        before_fork: Callable[[], None] = lambda: None,
    ) -> None:
        """`before_fork` is called before workers are forked, to wait for other threads."""
        self.data, self.collate, self.seed = data, collate, seed
        self.device, self.workers, self.before_fork = device, workers, before_fork
        self.columns: tuple[Tensor, ...] | None = None
        """The data as whole tensors on the device, if they are nothing else."""
        if collate.collate is None and type(data) in (TensorDataset, Tensors):
            found = data.tensors if type(data) is TensorDataset else (data.inputs, data.targets)
            self.columns = tuple(column.to(device) for column in found)

    @property
    def index_device(self) -> torch.device:
        """The device on which the indices of requests should lie."""
        return self.device if self.columns is not None else torch.device("cpu")

    def contents(self, wanted: Iterable[Wanted]) -> Iterator[Any]:
        """Yield the content of each request, in order, on the device."""
        if self.columns is not None:
            return map(self._rows, wanted)
        if not self.workers:
            return (move(self.read(request), self.device) for request in wanted)
        return self._from_workers(wanted)

    def _rows(self, wanted: Wanted) -> tuple[Tensor, ...]:
        assert self.columns is not None
        indices = wanted.indices
        if not isinstance(indices, Tensor):
            indices = torch.tensor(indices).to(self.device)
        return tuple([column.index_select(0, indices) for column in self.columns])

    def read(self, wanted: Wanted) -> Any:
        """Return one content, on the CPU."""
        indices = wanted.indices
        numbers = indices.tolist() if isinstance(indices, Tensor) else indices
        samples = [self._sample(wanted.epoch, index) for index in numbers]
        return self.collate(samples, wanted.epoch, wanted.batch, wanted.shard)

    def _sample(self, epoch: int, index: int) -> Any:
        seed_generators(key(self.seed, epoch, index, "sample"))
        try:
            return self.data[index]
        except LockstepError:
            raise
        except Exception as error:
            where = f"sample {index} of {type(self.data).__name__}"
            raise DataError(raised(where, error)) from error

    def probe(self) -> list[Any]:
        """Return the first and the last sample, as epoch 0 reads them."""
        return [self._sample(0, index) for index in sorted({0, len(self.data) - 1})]

    def reads_twice_alike(self, size: int) -> bool:
        """Return whether some samples read the same again, after others were read.

        Here and not in workers: each of them would remember something else.
        """
        size = max(1, min(size, len(self.data) // 2))
        if self.columns is not None or len(self.data) < 2 * size:
            return True
        first, other = (Wanted(0, list(range(n * size, (n + 1) * size)), 0, n) for n in range(2))
        contents = [self.read(wanted) for wanted in (first, other, first)]
        return digest(contents[0]) == digest(contents[2])

    def _from_workers(self, wanted: Iterable[Wanted]) -> Iterator[Any]:
        self.before_fork()
        return _arriving(_Indexed(self.read), wanted, self.device, self.workers)


class _Indexed:
    """A data set for DataLoader: its index is a request, its sample a content."""

    def __init__(self, read: Callable[[Wanted], Any]) -> None:
        self.read = read

    def __getitem__(self, wanted: Wanted) -> Any:
        try:
            return self.read(wanted)
        except LockstepError as error:
            # The receiver raises it: DataLoader would wrap an error of a worker in its trace.
            return error


def _arriving(
    source: Any, wanted: Iterable[Wanted] | None, device: torch.device, workers: int
) -> Iterator[Any]:
    """Yield what worker processes read ahead."""
    # The user decides how many workers there are.
    warnings.filterwarnings("ignore", message="This DataLoader will create")
    loader: Any = DataLoader(
        source,
        batch_size=None,
        sampler=cast(Any, wanted),
        num_workers=workers,
        # Without it, DataLoader would turn arrays into tensors, which this process does not.
        collate_fn=_as_it_is,
        worker_init_fn=partial(start_worker, os.getpid()),
        multiprocessing_context=WorkerContext(),
        pin_memory=device.type == "cuda",
        # Without it, DataLoader would draw from the generator of the training.
        generator=torch.Generator(),
    )
    for content in loader:
        if isinstance(content, LockstepError):
            raise content
        yield move(content, device, non_blocking=True)


def _as_it_is(content: Any) -> Any:
    return content


class Stretch(NamedTuple):
    """One global batch of a stream, as far as a replica reads it."""

    samples: int
    """Samples of the whole batch."""
    contents: list[tuple[range, tuple[int, ...], Any]]
    """The shards of each part, their sizes, and its content."""
    head: str
    """A hash of the first sample of the epoch."""


Cutter = Callable[[int, int], list[tuple[range, tuple[int, ...], int]]]
"""From the number of a batch and its samples to the parts to read: shards, sizes, first sample."""


class StreamReader:
    """Reads an iterable data set, which has no index and perhaps no length.

    Every replica goes through the whole stream, whose order is the global order, and keeps its own
    samples. `transform` is called for these only: put what takes time there.
    """

    def __init__(
        self,
        data: Any,
        collate: Collator,
        seed: int,
        device: torch.device,
        workers: int,
        transform: Callable[[Any], Any] | None,
        before_fork: Callable[[], None] = lambda: None,
    ) -> None:
        self.data, self.collate, self.seed = data, collate, seed
        self.device, self.workers, self.transform = device, workers, transform
        self.before_fork = before_fork

    def stretches(
        self, epoch: int, start: int, size: int, cut: Cutter, head: str = ""
    ) -> Iterator[Stretch]:
        """Yield the global batches of `size` samples of an epoch, from number `start` on.

        Refuse a stream whose first sample is not `head`, if one is expected.
        """
        source = _Stream(self, epoch, start, size, cut, head)
        if self.workers:
            self.before_fork()
            return _arriving(source, None, self.device, self.workers)
        return map(self._moved, iter(source))

    def probe(self) -> list[Any]:
        """Return the first sample, as epoch 0 reads it."""
        batch = next(_Stream(self, 0, 0, 1, lambda *_: []).batches(), [])
        if batch and self.transform is not None:
            seed_generators(key(self.seed, 0, 0, "sample"))
            return [self.transform(batch[0])]
        return batch

    def _moved(self, stretch: Stretch) -> Stretch:
        if isinstance(stretch, LockstepError):
            raise stretch
        return cast(Stretch, move(stretch, self.device))


class _Stream(IterableDataset[Any]):
    """Cuts a stream into global batches. With N workers, each makes every N-th of them."""

    def __init__(
        self,
        reader: StreamReader,
        epoch: int,
        start: int,
        size: int,
        cut: Cutter,
        head: str = "",
    ) -> None:
        self.reader, self.epoch, self.start, self.size, self.cut = reader, epoch, start, size, cut
        self.head = head

    def __iter__(self) -> Iterator[Any]:
        try:
            yield from self._stretches()
        except LockstepError as error:
            yield error

    def _stretches(self) -> Iterator[Stretch]:
        info = torch.utils.data.get_worker_info()
        own, of = (info.id, info.num_workers) if info is not None else (0, 1)
        # A stream that knows its worker would read a part of the data only. Here every worker goes
        # through all of them, and makes every N-th batch.
        worker._worker_info = None
        for batch, samples in enumerate(self.batches()):
            if batch == 0:
                self._compare_head(digest(samples[0]))
            if batch >= self.start and (batch - self.start) % of == own:
                # A stream that shuffles itself continues with its own random numbers.
                states = generator_states()
                yield self._stretch(batch, samples)
                restore_generators(states)

    def batches(self) -> Iterator[list[Any]]:
        """Yield the samples of each global batch, untransformed."""
        seed_generators(key(self.reader.seed, self.epoch, "stream"))
        data = self.reader.data
        if hasattr(data, "set_epoch"):
            data.set_epoch(self.epoch)
        samples: list[Any] = []
        position = 0
        try:
            for sample in data:
                position += 1
                samples.append(sample)
                if len(samples) == self.size:
                    yield samples
                    samples = []
        except LockstepError:
            raise
        except Exception as error:
            where = f"sample {position} of the stream {type(data).__name__}"
            raise DataError(raised(where, error)) from error
        if samples:
            # The last batch may be smaller: nothing is dropped.
            yield samples

    def _stretch(self, batch: int, samples: list[Any]) -> Stretch:
        reader, contents = self.reader, []
        for shards, sizes, first in self.cut(batch, len(samples)):
            mine = samples[first : first + sum(sizes)]
            if reader.transform is not None:
                place = batch * self.size + first
                mine = [self._transformed(place + n, sample) for n, sample in enumerate(mine)]
            content = reader.collate(mine, self.epoch, batch, shards.start)
            contents.append((shards, sizes, content))
        return Stretch(len(samples), contents, self.head)

    def _compare_head(self, found: str) -> None:
        if self.head not in ("", found):
            kind = type(self.reader.data).__name__
            raise DataError(
                f"the stream {kind} begins epoch {self.epoch} with a different sample than before "
                "the run was stopped: it keeps a state of its own, such as a generator. Let it "
                "draw from Python's, NumPy's or torch's own generator, which lockstep seeds for "
                "every epoch (WebDataset: shuffle(1000, rng=random)), or give it a method "
                "set_epoch."
            )
        self.head = found

    def _transformed(self, place: int, sample: Any) -> Any:
        assert self.reader.transform is not None
        seed_generators(key(self.reader.seed, self.epoch, place, "sample"))
        try:
            return self.reader.transform(sample)
        except Exception as error:
            raise DataError(raised(f"transform, on sample {place} of the stream", error)) from error
