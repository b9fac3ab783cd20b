"""End passes over loaders early: after a few steps, or after a part of an evaluation."""

from __future__ import annotations

import dis
import sys
from dataclasses import dataclass
from functools import wraps
from types import FrameType
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch.utils.data import DataLoader
from torch.utils.data.dataloader import _BaseDataLoaderIter

from lockstep.convert.verify.in_process.sample_randomness import base
from lockstep.convert.verify.in_process.training_state import Now
from lockstep.probes.recorder import Batch, is_ours

EVALUATED = 16
"""The most batches of the original in an evaluation. The number of ranks must divide it."""
LOOPS = {dis.opmap[name] for name in ("FOR_ITER", "SEND", "YIELD_VALUE") if name in dis.opmap}


@dataclass
class Turn:
    """One pass over a loader."""

    loader: int
    number: int
    total: int
    batch: int
    steps: int
    """Steps made before this pass."""
    backwards: int
    samples: int = 0
    count: int = 0


def install(now: Now) -> None:
    """Patch DataLoader so that passes end early."""
    numbers: WeakKeyDictionary[Any, int] = WeakKeyDictionary()
    turns: WeakKeyDictionary[Any, int] = WeakKeyDictionary()
    create, begin = DataLoader.__init__, DataLoader.__iter__
    following: Any = _BaseDataLoaderIter.__next__
    current: list[tuple[Turn, Any]] = []

    @wraps(create)
    def created(self: Any, *args: Any, **kwargs: Any) -> None:
        create(self, *args, **kwargs)
        numbers.setdefault(self, len(numbers))

    @wraps(begin)
    def begun(self: Any) -> Any:
        for listen in now.on_pass:
            listen(self)
        iterator: Any = begin(self)
        if not now.recorder.worker and self in numbers:
            number = turns[self] = turns.get(self, -1) + 1
            total, batch = _sizes(self)
            if now.kept.writes:
                now.kept.loaders[str(numbers[self])] = [total, batch]
            iterator._lockstep_turn = Turn(
                numbers[self], number, total, batch, now.most_steps, now.backwards
            )
        return iterator

    @wraps(following)
    def followed(self: Any) -> Any:
        turn: Turn | None = getattr(self, "_lockstep_turn", None)
        if turn is None:
            return following(self)
        if _loops(sys._getframe(1)) and _over(now, turn):
            _left(now, turn)
            raise StopIteration
        current[:] = [(turn, self._dataset)]
        try:
            return following(self)
        except StopIteration:
            _left(now, turn)
            raise

    def batch(data: Any, batch: Batch) -> Any:
        if not current:
            return data
        turn, dataset = current[0]
        turn.count, turn.samples = turn.count + 1, turn.samples + batch.size
        now.batch, now.evaluated = batch.number, now.evaluated or not torch.is_grad_enabled()
        now.samples = [base(dataset, i) for i in batch.indices or ()]
        now.names.clear()
        return data

    for owner, name, new in (
        (DataLoader, "__init__", created),
        (DataLoader, "__iter__", begun),
        (_BaseDataLoaderIter, "__next__", followed),
    ):
        setattr(owner, name, new)
    now.recorder.on_batch.append(batch)


def _over(now: Now, turn: Turn) -> bool:
    total, batch = now.kept.loaders.get(str(turn.loader), [turn.total, turn.batch])
    if now.backwards == turn.backwards:
        # Each rank takes its part of the samples that the original takes.
        parts = round(total / turn.total) if turn.total else 1
        return bool(batch) and turn.samples >= EVALUATED * batch // max(1, parts)
    most = now.recorder.settings.steps
    if most is not None:
        limit = -(-most * 2 // 3) if not turn.number else max(1, most // 3)
        if now.most_steps - turn.steps >= limit:
            return True
    whole = total // batch if batch else 0
    if whole and turn.count >= whole and total % batch:
        now.neutral(
            f"the last, uneven batch of an epoch was left out ({total % batch} of {total} samples)"
        )
        return True
    return False


def _left(now: Now, turn: Turn) -> None:
    now.evaluated = now.evaluated or (now.backwards == turn.backwards and turn.count > 0)


def _loops(frame: FrameType | None) -> bool:
    """Return whether a loop asks for the batch; a caller of next() may not expect an end."""
    while frame is not None and is_ours(frame.f_code.co_filename):
        frame = frame.f_back
    return frame is not None and frame.f_code.co_code[frame.f_lasti] in LOOPS


def _sizes(loader: Any) -> tuple[int, int]:
    """Return the samples of a pass and of a batch; 0 where they are unknown."""
    sampler = getattr(loader.batch_sampler, "sampler", None) or loader.sampler
    try:
        return len(sampler), int(loader.batch_size or 0)
    except Exception:  # the script's code may raise anything
        return 0, 0
