"""Take the steps of a program: compute, check, exchange, update, and note what happened."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from lockstep.data.keyed import seed_generators
from lockstep.data.nested import digest
from lockstep.engine.checks.buffers import BufferWatch
from lockstep.engine.checks.lone_shards import LoneShards
from lockstep.engine.group import Group
from lockstep.engine.program.across import across
from lockstep.engine.program.batches import Batch, Piece, join
from lockstep.engine.program.check import Checks, Noted, fingerprints
from lockstep.engine.program.record import ProgramRecord
from lockstep.engine.program.state import ProgramState
from lockstep.engine.program.step import Computing, Loss, StepLoss, Stepper
from lockstep.engine.program.tree import Gradients, present
from lockstep.engine.recipe.prepare import some
from lockstep.engine.run.details import Details
from lockstep.errors import RecipeError
from lockstep.keys import key


class Steps:
    """Takes one step after the other, of one or more optimizers."""

    def __init__(
        self,
        group: Group,
        state: ProgramState,
        computing: Computing,
        record: ProgramRecord,
        checks: Checks,
        buffers: BufferWatch,
    ) -> None:
        self.group, self.state, self.computing = group, state, computing
        self.record, self.checks, self.buffers = record, checks, buffers
        self.last: Batch | None = None
        """The batch of the present body, once a step has used it."""
        self.accept_changes = False
        self.details: Details | None = None
        """Notes the hashes of one step in detail, if an audit asks for them."""
        self._stepped: set[str] = set()
        self._lone = LoneShards(computing.shards, checks.progress)

    def take(self, batch: Any, loss: Loss, optimizer: torch.optim.Optimizer | None) -> StepLoss:
        """Take a step whose loss is a sum over the samples."""
        batch, name, stepper = self._prepare(batch, optimizer, {"loss": loss})
        call, checks = self.record.calls, self.checks
        watched = checks.watches(batch)
        noted: Noted = {}

        details, noise = self.details, stepper.noise
        if details is not None:
            details.before(self.record.iterations, call, name, stepper.optimizer)

        recordings = stepper.recordings
        first: Gradients | None = None
        # In exact mode all checks compare with an eager computation anyway.
        spot = recordings is not None and not checks.exact and checks.is_due(batch)

        def look(piece: Piece, gradients: Gradients) -> None:
            nonlocal first
            if spot and first is None:
                first = [None if g is None else g.clone() for g in gradients]
            if noise is not None:
                noise.part(piece.shards.start, stepper.used.parameters, gradients)
            if details is not None:
                details.piece(piece.shards.start, piece.content, gradients, stepper.used.parameters)
            if (shard := piece.shards.start) in watched:
                found = fingerprints(gradients)
                noted[shard] = (digest(piece.content), found)

        self.buffers.begin()
        found = stepper.gradients(
            batch,
            loss,
            call,
            self.record.notes,
            look if watched or details or spot or noise else None,
        )
        self.buffers.check()
        self._lone.look(batch.samples, whole=batch.whole)
        if stepper.sets_up():
            self.record.measure_again()
        checks.compare_shards(batch, loss, call, stepper, noted)
        checks.compare_divisions(batch, loss, call, stepper)
        if first is not None and recordings is not None:
            self.computing.enter(call, batch.pieces[0], again=True)
            where = f"step {call + 1}"
            recordings.check(first, stepper.compute(loss, batch.pieces[0].content)[1], where)
        return self._finish(name, stepper, batch, *found)

    def take_across(
        self,
        batch: Any,
        encode: Callable[[Any], Any],
        loss: Loss,
        optimizer: torch.optim.Optimizer | None,
    ) -> StepLoss:
        """Take a step whose loss sees the outputs of the whole global batch."""
        batch, name, stepper = self._prepare(batch, optimizer, {"loss": loss, "encoder": encode})
        self.buffers.begin()
        found = across(
            stepper, self.group, batch, encode, loss, self.record.calls, self.record.notes
        )
        self.buffers.check()
        self._lone.look(batch.samples, whole=batch.whole)
        return self._finish(name, stepper, batch, *found)

    def _prepare(
        self, batch: Any, optimizer: torch.optim.Optimizer | None, functions: dict[str, Any]
    ) -> tuple[Batch, str, Stepper]:
        several = isinstance(batch, list | tuple) and batch
        for one in batch if several else [batch]:
            if not isinstance(one, Batch):
                raise RecipeError(
                    f"loop.step was given a {type(one).__name__}. Give it what `for batch in "
                    "loop.batches(...)` yields, or a tuple of several such batches."
                )
            if one.used_in not in (-1, self.record.iterations):
                raise RecipeError(
                    "loop.step was given a batch of an earlier iteration, as itertools.cycle does. "
                    "A resumed run would not have it. When the batches end, iterate over what "
                    "loop.batches returned once more."
                )
            one.used_in = self.record.iterations
        name, stepper = self._stepper(optimizer)
        stepper.begin()
        for kind, function in functions.items():
            self.state.identify(f"{kind} of {name}", function)
        if self.state.changed:
            self.record.accept_or_refuse(self.accept_changes)
        return (join(batch) if several else batch), name, stepper

    def _stepper(self, optimizer: torch.optim.Optimizer | None) -> tuple[str, Stepper]:
        steppers = self.state.steppers
        if optimizer is None and len(steppers) == 1:
            return next(iter(steppers.items()))
        for name, stepper in steppers.items():
            if stepper.optimizer is optimizer:
                return name, stepper
        if optimizer is None:
            raise RecipeError(
                f"loop.step needs to know its optimizer: the loop has {len(steppers)}. Write "
                "loop.step(batch, loss, optimizer)."
            )
        raise RecipeError(
            f"the loop does not know this {type(optimizer).__name__}. Write: optimizer = "
            "loop.optimizer(...), before the loop over the epochs."
        )

    def _finish(
        self, name: str, stepper: Stepper, batch: Batch, gradients: Gradients, table: torch.Tensor
    ) -> StepLoss:
        """Exchange and divide the gradients, update the weights, and note the step."""
        used, table = stepper.exchanged(gradients, table)
        if name not in self._stepped:
            self._stepped.add(name)
            self._refuse_none(name, stepper, used)
        if self.checks.exact:
            self.record.receipts.note(self.record.iterations, self.record.calls, used, table)
        if stepper.noise is not None:
            stepper.noise.step(stepper.used.parameters, used, table[1], batch.samples)
        # An optimizer may draw random numbers, and so may the body after it.
        self._seed("update")
        stepper.update(used)
        found = StepLoss(table)
        self.record.step(name, found)
        self.last = batch
        return found

    def seed_body(self) -> None:
        """Seed all generators, so that the body draws the same numbers on every replica."""
        self._seed("body")

    def _seed(self, purpose: str) -> None:
        seed_generators(key(self.computing.seed, self.record.calls, purpose), self.group.device)

    def _refuse_none(self, name: str, stepper: Stepper, used: Gradients) -> None:
        if not present(used):
            names = [self.checks.names[p] for p in stepper.used.parameters]
            raise RecipeError(
                f"the loss gives no gradient to any parameter of {name}: {some(names)}. Is it "
                "computed with another model?"
            )
