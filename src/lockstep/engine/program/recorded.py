"""Record what a loss computes as a CUDA graph: all kernels of forward and backward in one launch.

A graph repeats what the GPU did, not what Python decided. So the loss must depend on nothing but
its batch, the weights and other tensors on the device. A program asks for this by `speed="graph"`.
lockstep compares each recording with an eager computation when it is made, and now and then later.
"""

from __future__ import annotations

import dataclasses
import warnings
from collections import Counter
from collections.abc import Callable, Hashable, Mapping
from typing import Any

import torch
from torch import Tensor

from lockstep.console import Progress
from lockstep.data.keyed import host_states
from lockstep.data.nested import map_tensors, tensors_in
from lockstep.engine.checks.fingerprint import TOLERANCE, fingerprint, relative_distance
from lockstep.engine.program.batches import Piece
from lockstep.engine.program.losses import Weighed
from lockstep.engine.program.tree import Gradients, present
from lockstep.engine.step.cuda_graph import recording
from lockstep.errors import Untrusted

WARMUP = 3
"""Eager computations before a recording: libraries choose their kernels in the first ones."""
MOST = 64
"""The most recordings that are kept: each holds the memory of its batch."""

Enter = Callable[[], None]
Compute = Callable[[Any], tuple[Weighed, Gradients]]
"""From a content of a batch to its loss and gradients."""


class Recordings:
    """The recordings of one optimizer's losses, one for each shard and shape of its batches."""

    def __init__(
        self,
        modules: list[torch.nn.Module],
        device: torch.device,
        progress: Progress,
        *,
        exact: bool,
    ) -> None:
        self.modules, self.device, self.progress, self.exact = modules, device, progress, exact
        self.known: dict[Hashable, _Recorded] = {}
        self.seen: Counter[Hashable] = Counter()
        self.tensors: list[Tensor] = []
        """Weights and buffers, whose places in memory the recordings know."""
        self.stamp: Any = None
        self.pool: Any = None
        self.refused = ""
        """Why nothing can be recorded."""
        self.new = False
        """Whether a loss was recorded since somebody looked."""

    def clear(self) -> None:
        """Forget all recordings: they work on other memory."""
        self.known.clear()
        self.seen.clear()
        self.tensors = []
        self.pool = None

    def begin(self, *numbers: Any) -> None:
        """Begin a step: forget recordings if weights lie elsewhere or layers have another mode.

        `numbers` are what else a recording depends on, such as the loss scale.
        """
        if self.refused:
            return
        places = [tensor.data_ptr() for tensor in self.tensors]
        stamp = (places, [module.training for module in self.modules], numbers)
        if stamp != self.stamp or not self.tensors:
            self.clear()
            self.tensors = [t for m in self.modules for t in (*m.parameters(), *m.buffers())]
            self.stamp = ([tensor.data_ptr() for tensor in self.tensors], *stamp[1:])

    def __call__(
        self, loss: Any, piece: Piece, enter: Enter, compute: Compute, *, last: bool
    ) -> tuple[Weighed, Gradients]:
        """Return loss and gradients of a piece: from a recording if there is one, or eagerly.

        `enter` sets everything random to the piece. `last` tells that nothing is computed after it
        before its gradients have been used.
        """
        enter()
        place = self._place(loss, piece)
        if place is None:
            return compute(piece.content)
        if (found := self.known.get(place)) is not None:
            return found(piece.content, copy=not last)
        self.seen[place] += 1
        if self.seen[place] <= WARMUP or len(self.known) >= MOST:
            return compute(piece.content)
        return self._record(place, piece.content, enter, compute)

    def _place(self, loss: Any, piece: Piece) -> Hashable | None:
        """Return what a recording is kept under; None if this loss cannot be recorded."""
        if self.refused:
            return None
        try:
            place = (loss, piece.shards.start, piece.sizes, self._shape(piece.content))
            hash(place)
        except (TypeError, ValueError) as error:
            self._refuse(str(error))
            return None
        return place

    def _shape(self, value: Any) -> Hashable:
        """Return the structure of a content, with everything in it but the values of tensors."""
        if isinstance(value, Tensor):
            if value.device != self.device:
                raise ValueError(f"a batch holds a tensor on {value.device}")
            return (value.shape, value.dtype, value.stride())
        if isinstance(value, Mapping):
            return (type(value), *((name, self._shape(item)) for name, item in value.items()))
        if isinstance(value, list | tuple):
            return (type(value), *(self._shape(item) for item in value))
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            fields = dataclasses.fields(value)
            return (type(value), *(self._shape(getattr(value, field.name)) for field in fields))
        if isinstance(value, str | bytes | int | float | complex | None):
            return value
        kind = type(value).__name__
        raise ValueError(f"a batch holds a {kind}, which may change without lockstep noticing")

    def _refuse(self, reason: str) -> None:
        self.clear()
        self.refused = reason
        self.progress.say(f"Speed: eager: {reason}.")

    def _record(
        self, place: Hashable, content: Any, enter: Enter, compute: Compute
    ) -> tuple[Weighed, Gradients]:
        """Compute eagerly, then record, replay, and compare the two."""
        self.new = True
        buffers = [b for module in self.modules for b in module.buffers()]
        before = [buffer.clone() for buffer in buffers]
        chance = host_states()
        eager, reason = None, None
        mode = torch.cuda.get_sync_debug_mode()
        # A prototype, torch says. What it does not notice, the recording will.
        warnings.filterwarnings("ignore", message="Synchronization debug mode")
        try:
            torch.cuda.set_sync_debug_mode("error")
            eager = compute(content)
        except Exception as error:
            reason = f"the loss asks the device for a value ({_first_line(error)})"
        finally:
            torch.cuda.set_sync_debug_mode(mode)
        if reason is None and host_states() != chance:
            reason = "the loss draws random numbers in Python, which decide what is computed"
        after = [buffer.clone() for buffer in buffers]
        if eager is not None and reason is None:
            _copy(buffers, before)
            reason = self._replay(place, content, enter, compute, eager)
        if reason is None:
            assert eager is not None
            return eager
        self._refuse(reason)
        if eager is not None:
            _copy(buffers, after)
            return eager
        self._drop_gradients()
        _copy(buffers, before)
        enter()
        return compute(content)

    def _replay(
        self,
        place: Hashable,
        content: Any,
        enter: Enter,
        compute: Compute,
        eager: tuple[Weighed, Gradients],
    ) -> str | None:
        """Record and replay a content; return how the result differs, if it does."""
        enter()
        try:
            torch.cuda.synchronize(self.device)
            recorded = _Recorded(self.device, content, compute, self.pool)
        except Exception as error:
            # A failed recording leaves the generator in the state of one.
            generator = torch.cuda.default_generators[self.device.index or 0]
            generator.graphsafe_set_state(generator.clone_state())
            self._drop_gradients()
            return _first_line(error)
        enter()
        found = recorded(content, copy=True)
        if (reason := self._differs(eager[1], found[1])) is not None:
            return f"recorded, {reason}"
        self.pool = recorded.graph.pool()
        self.known[place] = recorded
        return None

    def _drop_gradients(self) -> None:
        for module in self.modules:
            for p in module.parameters():
                p.grad = None

    def _differs(self, eager: Gradients, recorded: Gradients) -> str | None:
        """Return how a recorded gradient differs from an eager one, if by more than it may."""
        if [g is None for g in eager] != [g is None for g in recorded]:
            return "other parameters get a gradient than in an eager step"
        if self.exact:
            pairs = [(a, b) for a, b in zip(eager, recorded, strict=True) if a is not None]
            same = all(b is not None and bool(fingerprint(a) == fingerprint(b)) for a, b in pairs)
            return None if same else "the bits of the gradient differ from those of an eager step"
        apart = relative_distance(eager, [recorded])
        return (
            None if apart <= TOLERANCE else f"the gradient differs from an eager one by {apart:.1%}"
        )

    def check(self, recorded: Gradients, eager: Gradients, where: str) -> None:
        """End a run whose recorded loss no longer computes what the program says."""
        if (reason := self._differs(eager, recorded)) is not None:
            raise Untrusted(
                f"{where}: {reason}. The loss was recorded (speed='graph'), and now depends on "
                "something that a recording does not see: a number that Python computes, such as "
                "a weight that follows the step, or a branch. Keep such numbers in tensors on the "
                "device, or use speed='eager'."
            )


class _Recorded:
    """Forward and backward of one shape of batch, recorded as a graph."""

    def __init__(self, device: torch.device, content: Any, compute: Compute, pool: Any) -> None:
        """Record; nothing is executed yet."""
        self.content = map_tensors(content, Tensor.clone)
        self.homes = list(tensors_in(self.content))
        self.graph = torch.cuda.CUDAGraph()
        with recording(self.graph, device, pool):
            found, self.gradients = compute(self.content)
        self.found = found._replace(total=found.total.detach())
        self.present = present(self.gradients)

    def __call__(self, content: Any, *, copy: bool) -> tuple[Weighed, Gradients]:
        """Replay with another content; without `copy`, the next replay overwrites the gradients."""
        torch._foreach_copy_(self.homes, list(tensors_in(content)))
        self.graph.replay()
        found = Weighed(*(map_tensors(part, lambda t: t.detach().clone()) for part in self.found))
        if not copy or not self.present:
            return found, list(self.gradients)
        # One launch for all copies. A product with one has the same bits.
        copies = iter(torch._foreach_mul(self.present, 1.0))
        return found, [None if g is None else next(copies) for g in self.gradients]


def _copy(targets: list[Tensor], values: list[Tensor]) -> None:
    if targets:
        torch._foreach_copy_(targets, values)


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {(str(error).strip().splitlines() or ['no message'])[0]}"
