"""One step of a program: forward and backward shard by shard, exchange, update."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from operator import is_
from typing import Any

import numpy
import torch
from torch import Tensor, nn

from lockstep.data.keyed import seed_generators
from lockstep.engine.group import Group
from lockstep.engine.program.batches import Batch, Piece
from lockstep.engine.program.compiled import CompiledLosses
from lockstep.engine.program.exchange import Carrier, GradientExchange
from lockstep.engine.program.loss_scale import LossScale
from lockstep.engine.program.losses import Weighed, weighed
from lockstep.engine.program.noise import ProgramNoise
from lockstep.engine.program.notes import Notes
from lockstep.engine.program.overlap import Overlap
from lockstep.engine.program.recorded import Recordings
from lockstep.engine.program.tree import Gradients, ShardTree, present, take_gradients
from lockstep.engine.recipe.plan import Plan
from lockstep.engine.recipe.recipe import Precision
from lockstep.errors import LockstepError, RecipeError, raised
from lockstep.keys import key
from lockstep.layers.shards import Shards

Loss = Callable[[Any], Any]
"""From a content of a batch to (total, count)."""
Look = Callable[[Piece, Gradients], None]


class StepLoss:
    """The loss of one step, over the whole global batch. `float(loss)` waits for the device."""

    def __init__(self, table: Tensor) -> None:
        self.table = table
        """Sums and counts of all shards: (2, shards)."""

    def __float__(self) -> float:
        total, count = self.table.sum(1).tolist()
        return total / (count or 1.0)

    def item(self) -> float:
        """Return the loss as a number."""
        return float(self)

    def __add__(self, other: Any) -> float:
        return float(self) + float(other)

    __radd__ = __add__

    def __format__(self, spec: str) -> str:
        return format(float(self), spec)

    def __repr__(self) -> str:
        return f"StepLoss({float(self):g})"


class Computing:
    """Computes losses and gradients of pieces, with every random number keyed by its shard."""

    def __init__(
        self, group: Group, plan: Plan, shards: Shards, seed: int, precision: Precision
    ) -> None:
        self.group, self.plan, self.shards, self.seed = group, plan, shards, seed
        self.parts = plan.parts(group.world.rank)
        """The shards that go through the loss together, of this replica."""
        self.device, self.precision = group.device, precision
        self.modules: list[nn.Module] = []
        """The models of the program."""
        self.parameters: list[Tensor] = []
        """The parameters of all models."""
        self.loss_scale = LossScale() if precision is Precision.FP16 else None
        """The factor of every loss before backward, in fp16."""
        self._constants: dict[tuple[Any, ...], Tensor] = {}

    def enter(self, call: int, piece: Piece, *, again: bool = False) -> None:
        """Set batch norm, dropout and all generators to the shards of a piece."""
        self.shards.turn_to(call)
        if again:
            self.shards.visit(piece.shards, piece.sizes)
        else:
            first = piece.shards.start - self.shards.first
            self.shards.enter(range(first, first + len(piece.shards)), piece.sizes)
        seed_generators(key(self.seed, call, piece.shards.start, "step"), self.device)

    def table(self, rows: list[tuple[int, Tensor, Tensor | float]]) -> Tensor:
        """Return sums and counts of some shards as (2, shards), with zeros for the others."""
        shards = self.plan.shards
        if self.device.type == "cpu":
            values = [0.0] * (2 * shards)
            for shard, total, items in rows:
                values[shard], values[shards + shard] = float(total), float(items)
            # A third of the time that torch.tensor takes.
            return torch.from_numpy(numpy.array(values).reshape(2, shards))
        # Few launches: counts that the host knows come in one copy, sums and others one by one.
        counts = [0.0] * shards
        for shard, _, items in rows:
            counts[shard] = items if isinstance(items, float) else 0.0
        table = self.kept([0.0] * shards + counts, torch.float64).view(2, shards).clone()
        for shard, total, items in rows:
            table[0, shard] = total
            if isinstance(items, Tensor):
                table[1, shard] = items
        return table

    def kept(self, numbers: list[Any], kind: torch.dtype) -> Tensor:
        """Return numbers on the device; the same ones come in every step, and copying waits."""
        known = (kind, *numbers)
        if known not in self._constants:
            if len(self._constants) > 256:
                self._constants.clear()
            self._constants[known] = torch.tensor(numbers, dtype=kind, device=self.device)
        return self._constants[known]

    def enter_whole(self, call: int) -> None:
        """Set all generators for code that sees the whole batch, the same on every replica."""
        seed_generators(key(self.seed, call, "whole batch"), self.device)

    def autocast(self) -> AbstractContextManager[Any]:
        """Return a context that computes in 16 bits if the program asks for it."""
        kinds = {Precision.BF16: torch.bfloat16, Precision.FP16: torch.float16}
        if self.precision not in kinds:
            return nullcontext()
        return torch.autocast(self.device.type, kinds[self.precision])

    def run_backward(
        self, total: Tensor, inputs: list[Tensor] | None = None, scale: float | None = None
    ) -> None:
        """Run backward from a summed loss, multiplied by `scale` and by the loss scale."""
        if self.loss_scale is not None:
            # In float32: a large scale does not fit into float16.
            total = total.float()
            scale = self.loss_scale.value * (1.0 if scale is None else scale)
        start = None if scale is None else torch.full_like(total, scale)
        total.backward(start, inputs=inputs)

    def loss(self, loss: Loss, content: Any) -> Weighed:
        """Call a user's loss function; name it in what it raises."""
        name = getattr(loss, "__name__", type(loss).__name__)
        try:
            with self.autocast():
                return weighed(loss(content), name)
        except (LockstepError, torch.OutOfMemoryError):
            raise
        except Exception as error:
            raise RecipeError(raised(f"the loss {name}", error)) from error

    def backward(self, found: Weighed, used: Used, scale: float | None = None) -> Gradients:
        """Run backward on a summed loss; return the gradients of the optimizer's parameters.

        With `scale`, they are multiplied by it on the way.
        """
        if any(p.grad is not None for p in used.parameters):
            raise RecipeError(
                "a parameter has a gradient already: the program, or its loss function, calls "
                "backward itself. Return the summed loss and its count, and let loop.step call "
                "backward."
            )
        if not found.total.requires_grad:
            if float(found.items) == 0.0:
                return [None] * len(used.parameters)
            raise RecipeError(
                "the loss does not depend on any parameter: it was computed without gradients, or "
                "detached from the model."
            )
        self.run_backward(found.total, used.inputs, scale)
        return take_gradients(used.parameters)


class Used:
    """The parameters that one optimizer changes in a step; a program may freeze some later."""

    def __init__(self, optimizer: torch.optim.Optimizer, *, only: bool) -> None:
        """`only` says that the program has no other optimizer."""
        every = [p for group in optimizer.param_groups for p in group["params"]]
        self.parameters: list[Tensor] = [p for p in every if p.requires_grad]
        # A generator's step must not leave gradients in its discriminator. None stands for all:
        # some kinds of activation checkpointing allow nothing else.
        self.inputs = None if only else self.parameters
        """What backward is limited to."""


class Stepper:
    """Takes the steps of one optimizer."""

    def __init__(
        self,
        computing: Computing,
        optimizer: torch.optim.Optimizer,
        carrier: Carrier | None,
        clip: float | None,
        *,
        exact: bool,
    ) -> None:
        self.computing, self.optimizer, self.clip = computing, optimizer, clip
        self.carrier, self.exact, self.parts = carrier, exact, computing.plan.accumulation
        self.divided = False
        """Whether the gradients of this step are divided already."""
        self.items: float | None = None
        """The items of the whole batch, if this process knows them without asking the device."""
        self.only = True
        """Whether the program has no other optimizer."""
        self.used = Used(optimizer, only=True)
        self.exchange: GradientExchange | Overlap | None = None
        self.recordings: Recordings | None = None
        """Losses that were recorded as CUDA graphs, if the program asks for it."""
        self.compiled: CompiledLosses | None = None
        """Losses that torch.compile compiles, if the program asks for it."""
        self.noise: ProgramNoise | None = None
        """Measures the noise scale, if the program asks for it."""
        self.inside = False
        self.groups = len(optimizer.param_groups)
        optimizer.register_step_pre_hook(self._refuse_outside)

    def _refuse_outside(self, *_: Any) -> None:
        if not self.inside:
            kind = type(self.optimizer).__name__
            raise RecipeError(
                f"{kind}.step was called outside of loop.step: its gradients would be those of one "
                "replica alone. Write loop.step(batch, loss, optimizer), which computes the loss, "
                "calls backward, adds the gradients of all replicas and steps."
            )

    def begin(self) -> None:
        """Look again which parameters the optimizer has, and which of them are trained now."""
        if len(self.optimizer.param_groups) != self.groups:
            raise RecipeError(
                f"{type(self.optimizer).__name__} has been given another group of parameters since "
                "loop.optimizer: a resumed run would not have it. Give it all groups before "
                "loop.optimizer, and freeze those that wait with requires_grad_(False)."
            )
        used = Used(self.optimizer, only=self.only)
        before = self.used.parameters
        if len(used.parameters) != len(before) or not all(map(is_, used.parameters, before)):
            if isinstance(self.exchange, Overlap):
                self.exchange.close()
            self.exchange = None
            if self.recordings is not None:
                self.recordings.clear()
        self.used = used
        if self.exchange is None and self.carrier is not None:
            # A recorded backward pass calls no hooks.
            overlaps = self.carrier.overlaps and self.recordings is None
            kind = Overlap if overlaps else GradientExchange
            self.exchange = kind(self.carrier, used.parameters, self.computing.plan.shards)

    def sets_up(self) -> bool:
        """Return whether a loss was compiled or recorded since this was asked last."""
        found = [one for one in (self.compiled, self.recordings) if one is not None and one.new]
        for one in found:
            one.new = False
        return bool(found)

    def gradients(
        self, batch: Batch, loss: Loss, call: int, notes: Notes, look: Look | None = None
    ) -> tuple[Gradients, Tensor]:
        """Return this replica's sum of gradients, and its table of losses and counts.

        `look` is called with each piece and its gradients.
        """
        computing, used = self.computing, self.used
        rows: list[tuple[int, Tensor, Tensor | float]] = []
        tree = ShardTree(len(used.parameters))
        pieces = {piece.shards.start: piece for piece in batch.pieces}
        # One part of the batch, and nothing to exchange: the loss can be divided instead.
        self.divided = not self.exact and self.carrier is None and len(pieces) == self.parts == 1
        if (recordings := self.recordings) is not None:
            scale = computing.loss_scale
            recordings.begin(self.divided, None if scale is None else scale.value)
        overlap = self.exchange if isinstance(self.exchange, Overlap) else None
        ends = max(pieces, default=-1)
        for number, shards in enumerate(computing.parts):
            piece = pieces.get(shards.start)
            if piece is None:
                tree.add(None)
                continue
            enter, function = partial(computing.enter, call, piece), loss
            if self.compiled is not None:
                # Before gradients may travel: what is compiled is compared with eager steps.
                function = self.compiled(loss, piece, enter, self.compute)
            if overlap is not None and shards.start == ends:
                overlap.begin([waiting for _, waiting in tree.waiting])
            if recordings is None:
                enter()
                found, mine = self.compute(function, piece.content)
            else:
                last = number + 1 == len(computing.parts)
                compute = partial(self.compute, function)
                found, mine = recordings(loss, piece, enter, compute, last=last)
            self.divided = self.divided and isinstance(found.items, float)
            if overlap is not None and shards.start == ends:
                overlap.complete(mine)
            if look is not None:
                look(piece, mine)
            tree.add(mine)
            rows.append((shards.start, found.total.detach(), found.items))
            if found.notes:
                notes.add(shards.start, found.notes)
        if overlap is not None and not pieces:
            overlap.begin([])
            overlap.complete([None] * len(used.parameters))
        known = [items for _, _, items in rows if isinstance(items, float) and items.is_integer()]
        # Whole numbers: their sum is the same in any order, and needs no device.
        self.items = sum(known) if self.carrier is None and len(known) == len(rows) else None
        return tree.total(), computing.table(rows)

    def compute(self, loss: Loss, content: Any) -> tuple[Weighed, Gradients]:
        """Return loss and gradients of a part of the batch."""
        found = self.computing.loss(loss, content)
        scale = None
        if self.divided and isinstance(found.items, float):
            scale = 1.0 / (found.items or 1.0)
        return found, self.computing.backward(found, self.used, scale)

    def exchanged(self, gradients: Gradients, table: Tensor) -> tuple[Gradients, Tensor]:
        """Add gradients and tables over the replicas; divide the gradients by the items."""
        if self.exchange is not None:
            gradients, table = self.exchange(gradients, table)
        if not self.divided and (found := present(gradients)):
            known = self.items
            kept = None if known is None else self.computing.kept([known], torch.float64)[0]
            items = table[1].sum() if kept is None else kept
            divide(found, items, exact=self.exact)
        self.divided, self.items = False, None
        return gradients, table

    def update(self, gradients: Gradients) -> None:
        """Clip the gradients and let the optimizer change the weights."""
        scale, found = self.computing.loss_scale, present(gradients)
        # In fp16 a sum may overflow: then the step changes nothing, and the scale is halved.
        if scale is None or not found or scale.accepts(found):
            self._change_weights(gradients, found)
        for p in self.computing.parameters:
            # Also of parameters that no optimizer has.
            p.grad = None

    def _change_weights(self, gradients: Gradients, found: list[Tensor]) -> None:
        for p, gradient in zip(self.used.parameters, gradients, strict=True):
            p.grad = gradient
        if self.clip is not None and found:
            if self.exact:
                # Copies: a norm's bits may depend on how its operand lies in memory.
                found = [g.clone(memory_format=torch.contiguous_format) for g in found]
            norm = torch.nn.utils.get_total_norm(found)
            torch.nn.utils.clip_grads_with_norm_(self.used.parameters, self.clip, norm)
        self.inside = True
        try:
            self.optimizer.step()
        finally:
            self.inside = False


def divide(gradients: list[Tensor], items: Tensor, *, exact: bool) -> None:
    """Divide sums by the number of items; a batch without any item has no gradient to divide."""
    # The bits of a complex quotient depend on how the tensor lies in memory; those of its parts
    # do not.
    gradients = [torch.view_as_real(g) if g.is_complex() else g for g in gradients]
    if items.device.type == "cpu":
        torch._foreach_div_(gradients, items.item() or 1.0)
    else:
        # By a tensor, also where the number is known: a GPU divides by a number in another way.
        torch._foreach_div_(gradients, torch.where(items > 0, items, 1.0).float())
    if exact:
        # A sum that starts from zero has no -0, one that starts from a gradient may.
        torch._foreach_add_(gradients, 0.0)
