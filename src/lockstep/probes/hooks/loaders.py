"""Record the samples that each rank gets, in their order, and how long it waits for them."""

from __future__ import annotations

import time
import zlib
from collections import deque
from collections.abc import Iterator
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset, RandomSampler, SequentialSampler
from torch.utils.data.dataloader import _BaseDataLoaderIter
from torch.utils.data.distributed import DistributedSampler

from lockstep.probes.hooks.randomness import states
from lockstep.probes.names import packed
from lockstep.probes.patching import replaces
from lockstep.probes.recorder import Batch, LoaderPass, Recorder, place

CLOSE = 8
"""Batches of a pass whose contents are recorded; of a stream without indices, all are."""
ROW_BYTES = 1024
"""About how many bytes of a sample to look at, evenly spread."""
MOST_BYTES = 256_000_000
"""The largest array of a data set to look through; larger ones take too long."""
MOST_INDICES = 2_000_000


def install(recorder: Recorder) -> None:
    """Watch DataLoader and its iterators."""
    numbers: WeakKeyDictionary[Any, str] = WeakKeyDictionary()
    turns: dict[str, int] = {}

    @replaces("__init__", DataLoader)
    def created(create: Any, self: Any, *args: Any, **kwargs: Any) -> None:
        where = place(2)
        create(self, *args, **kwargs)
        for listen in recorder.on_loader:
            listen(self)
        if recorder.worker or self in numbers:
            return
        # Not a plain number: a loader that only one rank makes would shift all others.
        again = sum(key.startswith(f"{where}#") for key in turns)
        numbers[self] = f"{where}#{again}"
        turns[numbers[self]] = 0
        recorder.note("loader", loader=numbers[self], place=where, **described(self))

    @replaces("__iter__", DataLoader)
    def begun(begin: Any, self: Any) -> Any:
        if recorder.worker or self not in numbers:
            return begin(self)
        number = numbers[self]
        turn, turns[number] = turns[number], turns[number] + 1
        where = place(2)
        epoch = getattr(_sampler(self), "epoch", None)
        epoch = epoch if isinstance(epoch, int) else None
        state = LoaderPass(number, turn, where, isinstance(self.dataset, IterableDataset))
        for listen in recorder.on_pass:
            listen(self, state)
        recorder.window.left(number)
        recorder.now(f"starting to load data at {where}")
        iterator: Any = begin(self)
        recorder.note("pass", loader=number, turn=turn, place=where, epoch=epoch)
        # Not a wrapper: scripts and libraries check the type of the iterator.
        iterator._lockstep = state
        return iterator

    @replaces("_next_index", _BaseDataLoaderIter)
    def drawn(draw: Any, self: Any) -> Any:
        index = draw(self)
        self.__dict__.setdefault("_lockstep_drawn", deque()).append(index)
        return index

    @replaces("_reset", _BaseDataLoaderIter)
    def was_reset(reset: Any, self: Any, *args: Any, **kwargs: Any) -> None:
        self.__dict__.setdefault("_lockstep_drawn", deque()).clear()
        reset(self, *args, **kwargs)

    @replaces("__next__", _BaseDataLoaderIter)
    def followed(following: Any, self: Any) -> Any:
        state: LoaderPass | None = getattr(self, "_lockstep", None)
        if state is None:
            return following(self)
        most = recorder.settings.batches
        if most is not None and state.count >= most:
            _over(recorder, state, complete=False)
            raise StopIteration
        recorder.now(f"waiting for data at {state.place}")
        start = time.perf_counter()
        try:
            if any(ends(state) for ends in recorder.ends_pass):
                raise StopIteration
            data = following(self)
        except StopIteration:
            _over(recorder, state, complete=True)
            raise
        finally:
            recorder.now(f"after loading data at {state.place}")
        wait = time.perf_counter() - start
        index = self._lockstep_drawn.popleft() if self._lockstep_drawn else None
        return _deliver(recorder, state, data, index, wait)


def _deliver(recorder: Recorder, state: LoaderPass, data: Any, index: Any, wait: float) -> Any:
    """Record a batch and return what the listeners make of it."""
    indices = _indices(index)
    size = len(indices) if indices else size_of(data)
    facts: dict[str, Any] = {}
    if indices is not None and state.indices < MOST_INDICES:
        facts["indices"] = packed(indices)
        state.indices += len(indices)
    if state.count < CLOSE or state.streams:
        facts["rows"] = contents(data, size)
    if recorder.looks:
        facts["random"] = states()
    recorder.note(
        "batch",
        loader=state.loader,
        turn=state.turn,
        number=state.count,
        size=size,
        wait=round(wait, 6),
        grad=torch.is_grad_enabled(),
        **facts,
    )
    recorder.window.took(state.loader, size, wait)
    batch = Batch(state.loader, state.count, size, indices)
    state.count += 1
    for listen in recorder.on_batch:
        data = listen(data, batch)
    return data


def _over(recorder: Recorder, state: LoaderPass, complete: bool) -> None:
    for listen in recorder.on_pass_end:
        listen(state)
    if not state.over:
        state.over = True
        facts = {"loader": state.loader, "turn": state.turn, "batches": state.count}
        recorder.note("passed", **facts, complete=complete)


def described(loader: Any) -> dict[str, Any]:
    """Describe a loader: its data set, sampler and sizes."""
    sampler = _sampler(loader)
    streams = isinstance(loader.dataset, IterableDataset)
    # If the script gives a batch sampler, the loader's sampler is idle: its length means nothing.
    own = hasattr(loader.batch_sampler, "__iter__") and not hasattr(loader.batch_sampler, "sampler")
    samples_known = not streams and not own
    facts: dict[str, Any] = {
        "dataset": type(loader.dataset).__name__,
        "samples": None if streams else _length(loader.dataset),
        "streams": streams,
        "batch_size": loader.batch_size or getattr(loader.batch_sampler, "batch_size", None),
        "drop_last": bool(loader.drop_last or getattr(loader.batch_sampler, "drop_last", False)),
        "workers": loader.num_workers,
        "sampler": type(sampler).__name__,
        "shuffles": isinstance(sampler, RandomSampler),
        "in_order": isinstance(sampler, SequentialSampler),
        "length": None if streams else _length(loader),
        "drawn": _length(sampler) if samples_known else None,
    }
    if isinstance(sampler, DistributedSampler) or hasattr(sampler, "num_replicas"):
        facts["parts"] = getattr(sampler, "num_replicas", None)
        facts["part"] = getattr(sampler, "rank", None)
        facts["shuffles"] = bool(getattr(sampler, "shuffle", False))
        facts["sampler_drops"] = bool(getattr(sampler, "drop_last", False))
    if not streams:
        facts["contents"] = fingerprints(loader.dataset)
    return facts


def _sampler(loader: Any) -> Any:
    return getattr(loader.batch_sampler, "sampler", None) or loader.sampler


def _length(sized: Any) -> int | None:
    try:
        return len(sized)
    except Exception:  # the script's code may raise anything
        return None


def _indices(index: Any) -> list[int] | None:
    """Return the indices of one batch; None if the data set has none."""
    if type(index) is list and index and type(index[0]) is int:
        return index
    found = index if isinstance(index, list | tuple) else [index]
    if isinstance(index, Tensor):
        found = index.reshape(-1).tolist()
    try:
        return [int(i) for i in found]
    except (TypeError, ValueError):
        return None


def size_of(data: Any) -> int:
    """Return the number of samples in a batch: the length of its first tensor or list."""
    for part in flat(data):
        if isinstance(part, Tensor) and part.dim():
            return int(part.shape[0])
        if isinstance(part, list):
            return len(part)
    return 1


def flat(data: Any, depth: int = 4) -> Iterator[Any]:
    """Yield the tensors, lists of plain values and single values inside a batch."""
    if isinstance(data, Tensor) or not depth:
        yield data
    elif isinstance(data, dict):
        for value in data.values():
            yield from flat(value, depth - 1)
    elif isinstance(data, list | tuple):
        if data and all(isinstance(x, str | bytes | int | float) for x in data):
            yield list(data)
        else:
            for value in data:
                yield from flat(value, depth - 1)
    elif hasattr(data, "__dict__") and not callable(data):
        for value in vars(data).values():
            yield from flat(value, depth - 1)
    else:
        yield data


def contents(data: Any, size: int) -> list[int]:
    """Return a number for each sample of a batch that follows from its content."""
    found = [0] * size
    for part in list(flat(data))[:6]:
        if isinstance(part, Tensor) and part.dim() and part.shape[0] == size:
            rows = part.detach().reshape(size, -1)
            every = max(1, rows.shape[1] * rows.element_size() // ROW_BYTES)
            rows = rows[:, ::every].cpu().contiguous()
            width = rows.shape[1] * rows.element_size()
            content = rows.view(torch.uint8).numpy().tobytes() if width else b""
            for number in range(size):
                found[number] = zlib.crc32(
                    content[number * width : (number + 1) * width], found[number]
                )
        elif isinstance(part, list) and len(part) == size:
            for number, value in enumerate(part):
                found[number] = zlib.crc32(repr(value).encode(), found[number])
    return found


def fingerprints(dataset: Any, depth: int = 3) -> dict[str, list[int]]:
    """Return, for every list in a data set, [length, number for its order, number for its content].

    If two ranks hold the same things in different orders, the same index means different samples.
    """
    found: dict[str, list[int]] = {}
    kept = {} if isinstance(dataset, Tensor) else getattr(dataset, "__dict__", {})
    for name, value in list(kept.items()):
        try:
            prints = _fingerprint(value)
        except Exception:  # the script's objects may raise anything
            prints = None
        if prints is not None:
            found[name] = prints
        elif isinstance(value, tuple | list) and all(isinstance(x, Tensor) for x in value):
            kinds = {f"{name}[{n}]": _fingerprint(x) for n, x in enumerate(value[:8])}
            found |= {key: numbers for key, numbers in kinds.items() if numbers is not None}
        elif depth and hasattr(value, "__getitem__") and hasattr(value, "__dict__"):
            inner = fingerprints(value, depth - 1)
            found |= {f"{name}.{key}": numbers for key, numbers in inner.items()}
    return found


def _fingerprint(value: Any) -> list[int] | None:
    if isinstance(value, range):
        value = list(value)
    if isinstance(value, Tensor):
        value = value.detach().cpu().numpy() if value.dim() else None
    if type(value).__module__ == "numpy" and hasattr(value, "ndim") and value.ndim:
        rows = value.reshape(len(value), -1) if len(value) else value
        if not len(value) or rows.dtype == object or rows.nbytes > MOST_BYTES:
            return None
        every = max(1, rows.shape[1] * rows.itemsize // 64)
        items = [row.tobytes() for row in rows[:100_000, ::every]]
    elif isinstance(value, list | tuple) and len(value) > 1 and all(map(_plain, value[:100])):
        items = [repr(item)[:300].encode(errors="replace") for item in value[:100_000]]
    else:
        return None
    numbers = [zlib.crc32(item) for item in items]
    order = zlib.crc32(b"".join(number.to_bytes(4, "little") for number in numbers))
    return [len(value), order, sum(numbers)]


def _plain(item: Any) -> bool:
    """Whether an item is cheap to read: a path, a label, or a pair of them."""
    if isinstance(item, list | tuple):
        return len(item) <= 8 and all(isinstance(x, str | int | float | bytes) for x in item)
    return isinstance(item, str | int | float | bytes)
