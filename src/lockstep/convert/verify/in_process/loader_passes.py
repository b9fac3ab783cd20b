"""End passes over loaders early: after a few steps, or after a part of an evaluation."""

from __future__ import annotations

import dis
import sys
from dataclasses import dataclass
from itertools import count
from types import FrameType
from typing import Any
from weakref import WeakKeyDictionary

import torch

from lockstep.convert.verify.in_process.samples import base
from lockstep.convert.verify.in_process.training_state import Now
from lockstep.probes.recorder import Batch, LoaderPass, is_ours

DIVIDED = "_Divided._pass"
"""The generator of a converted script that passes batches on."""
LOOPS = {dis.opmap[name] for name in ("FOR_ITER", "SEND", "YIELD_VALUE") if name in dis.opmap}


@dataclass
class Turn:
    """The samples of one pass over a loader, and the training before it."""

    loader: int
    dataset: Any
    total: int
    batch: int
    steps: int
    """Steps made before this pass."""
    backwards: int
    samples: int = 0


def install(now: Now, *, uneven: bool = False) -> None:
    """End passes early, before an uneven last batch too, and keep the samples of each batch."""
    recorder = now.recorder
    numbers: WeakKeyDictionary[Any, int] = WeakKeyDictionary()
    order = count()
    turns: WeakKeyDictionary[LoaderPass, Turn] = WeakKeyDictionary()
    current: list[Turn] = []

    def created(loader: Any) -> None:
        if loader not in numbers:
            numbers[loader] = next(order)

    def begun(loader: Any, state: LoaderPass) -> None:
        total, batch = _sizes(loader)
        if now.kept.writes:
            now.kept.loaders[str(numbers[loader])] = [total, batch]
        turns[state] = Turn(
            numbers[loader], loader.dataset, total, batch, now.most_steps, now.backwards
        )

    def ends(state: LoaderPass) -> bool:
        current[:] = [turns[state]]
        return _loops(sys._getframe(1)) and _over(now, state, turns[state], uneven)

    def batch(data: Any, batch: Batch) -> Any:
        if not current:
            return data
        turn = current[0]
        turn.samples += batch.size
        now.batch, now.evaluated = batch.number, now.evaluated or not torch.is_grad_enabled()
        found = [base(turn.dataset, i) for i in batch.indices or ()]
        now.samples = [i if isinstance(i, int) else str(i) for i in found]
        if now.order is not None and len(now.order) == len(now.samples):
            now.samples = [now.samples[i] for i in now.order]
        now.order = None
        if torch.is_grad_enabled():
            if now.learned:
                now.recent.clear()
                now.learned = False
            now.recent[turn.loader] = now.samples
        now.names.clear()
        return data

    def ended(state: LoaderPass) -> None:
        learned = now.backwards != turns[state].backwards
        # What is drawn from now on is for no sample.
        now.samples = []
        now.recent.clear()
        now.evaluated = now.evaluated or (state.count > 0 and not learned)

    recorder.on_loader.append(created)
    recorder.on_pass.append(begun)
    recorder.ends_pass.append(ends)
    recorder.on_batch.append(batch)
    recorder.on_pass_end.append(ended)


def _over(now: Now, state: LoaderPass, turn: Turn, uneven: bool) -> bool:
    total, batch = now.kept.loaders.get(str(turn.loader), [turn.total, turn.batch])
    if now.backwards == turn.backwards:
        # Each rank takes its part of the samples that the original takes.
        parts = round(total / turn.total) if turn.total else 1
        evaluated = now.recorder.settings.evaluated * batch
        return bool(batch) and turn.samples >= evaluated // max(1, parts)
    most = now.recorder.settings.steps
    if most is not None:
        # Three passes make the steps that are compared, and later ones one step each.
        limit = -(-most * 2 // 3) if not state.turn else max(1, most // 3)
        if now.most_steps >= most:
            limit = 1
        if now.most_steps - turn.steps >= limit:
            return True
    whole = total // batch if batch else 0
    if whole and state.count >= whole and total % batch and not uneven:
        now.neutral(
            f"the last, uneven batch of an epoch was left out ({total % batch} of {total} samples)"
        )
        return True
    return False


def _loops(frame: FrameType | None) -> bool:
    """Return whether a loop asks for the batch; a caller of next() may not expect an end."""
    while frame is not None and (
        is_ours(frame.f_code.co_filename) or frame.f_code.co_qualname == DIVIDED
    ):
        frame = frame.f_back
    return frame is not None and frame.f_code.co_code[frame.f_lasti] in LOOPS


def _sizes(loader: Any) -> tuple[int, int]:
    """Return the samples of a pass and of a batch; 0 where they are unknown."""
    sampler = getattr(loader.batch_sampler, "sampler", None) or loader.sampler
    try:
        return len(sampler), int(loader.batch_size or 0)
    except Exception:  # the script's code may raise anything
        return 0, 0
