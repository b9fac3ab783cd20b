"""Make batches of whatever data a program has: with an index, or as a stream."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch.utils.data import DataLoader

from lockstep.data.readers import Collate, Collator, IndexedReader, StreamReader
from lockstep.engine.group import Group
from lockstep.engine.program.batches import Batches, Control, Division
from lockstep.engine.program.order import Order, Sampled, Shuffled
from lockstep.engine.program.settings import Settings
from lockstep.engine.program.state import ProgramState
from lockstep.errors import DataError, PlanError, RecipeError


def has_index(data: Any) -> bool:
    """Return whether a data set has a length and an index."""
    # A stream of torch's has __getitem__, which raises.
    index = getattr(type(data), "__getitem__", None)
    return index is not None and hasattr(data, "__len__") and not _is_stream(data)


def _is_stream(data: Any) -> bool:
    from torch.utils.data import IterableDataset

    return isinstance(data, IterableDataset)


def check_length(data: Any, group: Group) -> None:
    """Refuse data without samples, or with different lengths on different replicas."""
    if len(set(group.objects(len(data), "read data"))) > 1:
        raise DataError(
            f"{type(data).__name__} has different lengths on different replicas: what builds it "
            "depends on something besides the seed."
        )
    if not len(data):
        raise DataError(f"{type(data).__name__} has no samples.")


def make_batches(
    settings: Settings,
    group: Group,
    state: ProgramState,
    division: Division,
    control: Control,
    before_fork: Callable[[], None],
    data: Any,
    *,
    collate: Collate | None,
    sampler: Any,
    batch_sampler: Any,
    shuffle: bool,
    transform: Callable[[Any], Any] | None,
    workers: int | None,
    may_drop: bool,
    global_batch: int | None,
    drop_last: bool,
) -> Batches:
    """Return the global batches of some data, and let the state of the program know them."""
    number = len(state.batches)
    if global_batch is not None:
        if batch_sampler is not None:
            raise RecipeError("a batch_sampler decides the size of its batches: no global_batch.")
        if global_batch < settings.shards:
            raise PlanError(
                f"global_batch is {global_batch}, and a batch is cut into {settings.shards} "
                "shards. Give at least one sample for each."
            )
        state.fact(f"global batch of data set {number}", global_batch)
    size = settings.global_batch if global_batch is None else global_batch
    if drop_last:
        if batch_sampler is not None:
            raise RecipeError("a batch_sampler decides which batches there are: no drop_last.")
        state.fact(f"last batch of data set {number}", "dropped")
    # Two data sets of one program have different orders.
    seed = settings.seed + number
    collator = Collator(collate, seed, may_drop=may_drop)
    workers = settings.workers if workers is None else workers
    kind = type(data).__name__
    reader: IndexedReader | StreamReader
    order: Order | None = None
    if isinstance(data, DataLoader):
        raise RecipeError(
            "loop.batches was given a DataLoader, whose samples are batches already. Give it the "
            "data set: loop.batches(loader.dataset, collate=loader.collate_fn). The size of a "
            "batch is the global_batch of the Loop."
        )
    if has_index(data):
        if transform is not None:
            raise RecipeError("transform is for streams: a data set transforms in __getitem__.")
        check_length(data, group)
        reader = IndexedReader(data, collator, seed, group.device, workers, before_fork)
        if drop_last and len(data) < size:
            raise DataError(
                f"{kind} has {len(data)} samples, fewer than a batch of {size}: with drop_last, "
                "nothing is left. Use a smaller global_batch."
            )
        if batch_sampler is not None and sampler is not None:
            raise RecipeError("give sampler or batch_sampler, not both.")
        if batch_sampler is not None:
            order = Sampled(batch_sampler, None, seed, group)
        elif sampler is not None:
            order = Sampled(sampler, size, seed, group, drop_last=drop_last)
        else:
            order = Shuffled(
                len(data), size, seed, reader.index_device, shuffle=shuffle, drop_last=drop_last
            )
        state.fact(f"samples of data set {number}", len(data))
    else:
        if not hasattr(data, "__iter__"):
            raise RecipeError(f"{kind} is no data set: it has neither an index nor __iter__.")
        if sampler is not None or batch_sampler is not None:
            raise RecipeError(f"{kind} is a stream, which has no index for a sampler.")
        if iter(data) is data:
            raise RecipeError(
                f"the stream is a {kind}, which can be read only once. Pass an object whose "
                "__iter__ starts again, so that the next epoch and a resumed run can read it."
            )
        reader = StreamReader(data, collator, seed, group.device, workers, transform, before_fork)
    if collate is not None:
        state.identify(f"collate function {number}", collate)
    state.identify(f"data set {number}", type(data))
    batches = Batches(reader, order, division, control, size, drop_last=drop_last)
    state.batches.append(batches)
    return batches
