"""`Loop`: a training loop of your own, with the result of one GPU on any number of replicas."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack

import torch
from torch import nn

from lockstep.data.keyed import seed_generators
from lockstep.data.readers import Collate
from lockstep.engine.program.around import Around
from lockstep.engine.program.batches import Batch, Batches, Division
from lockstep.engine.program.given import taken
from lockstep.engine.program.settings import Options, Settings
from lockstep.engine.program.sources import make_batches
from lockstep.engine.program.start import Parts, start
from lockstep.engine.program.step import Loss, StepLoss
from lockstep.errors import FolderError, PlanError, RecipeError
from lockstep.keys import key

Module = TypeVar("Module", bound=nn.Module)
Optimizer = TypeVar("Optimizer", bound=torch.optim.Optimizer)
_open: list[Loop] = []
finished: list[dict[str, Any]] = []
"""The summaries of the loops that have ended in this process."""


class Loop(Around):
    """Joins the replicas that it finds; `lockstep.Loop` shows how to use it."""

    def __init__(
        self,
        *,
        global_batch: int,
        shards: int = 4,
        seed: int = 0,
        exact: bool = False,
        out: str | Path | None = None,
        name: str = "",
        resume: bool = False,
        **options: Unpack[Options],
    ) -> None:
        """Join the other replicas. Flags of `lockstep train` replace the arguments of their name.

        Args:
            global_batch: Samples of one batch, over all replicas.
            shards: Fixed slices of the batch, a power of two: the most replicas that can share it.
            seed: Decides initial weights, the order of the samples and all random numbers.
            exact: Compute the same bits on any number of replicas.
            out: The folder of the run, new or empty; default: `runs/NAME-TIME`.
            name: The name of the run; default: that of the program's file.
            resume: Continue the run in `out` from its last checkpoint.
            options: More about how to run; see `Options`.
        """
        if _open:
            raise PlanError(
                "this program has a Loop that is still open, and a process can be a replica of "
                "only one. End the first before the second begins: with Loop(...) as loop: ..."
            )
        given = taken()
        self._alone = given is None  # not started by lockstep train
        folder = None if out is None else Path(out)
        self.settings = Settings(
            global_batch=global_batch,
            shards=shards,
            seed=seed,
            exact=exact,
            out=folder,
            name=name,
            resume=resume,
            **options,
        ).replaced_by(given)
        self._parts: Parts = start(self.settings, given)
        super().__init__()
        self.device = self._parts.group.device
        """The device of this replica. Models and batches are moved to it."""
        self.summary: dict[str, Any] = {}
        """What run.json holds, once the loop has ended."""
        self._epochs: int | None = None
        self._begun = False
        # The program builds its models and data now: the same on every replica.
        seed_generators(key(self.settings.seed, "weights"), self.device)
        _open.append(self)

    def __enter__(self) -> Self:
        return self

    @property
    def rank(self) -> int:
        """The number of this replica, from 0."""
        return self._parts.group.world.rank

    @property
    def replicas(self) -> int:
        """The number of replicas."""
        return self._parts.group.world.size

    @property
    def is_first(self) -> bool:
        """Whether this is the replica that prints and writes files."""
        return self._parts.group.world.is_first

    @property
    def folder(self) -> Path:
        """The folder of the run."""
        return self._parts.record.folder.path

    @property
    def steps(self) -> int:
        """Batches whose body has ended, over the whole run."""
        return self._parts.record.iterations

    @property
    def epoch(self) -> int:
        """The current epoch, from 0."""
        return self._parts.record.epoch

    def model(self, module: Module, name: str = "") -> Module:
        """Move a model to the device, and let its batch norm and dropout work per shard.

        Returns the same module: call it, save it and reach into it as before. Do this for every
        model that the loss uses, also for a frozen one, before you make the optimizer.
        """
        self._before_training("model")
        self._parts.add_model(module, name)
        return module

    def optimizer(
        self, optimizer: Optimizer, *, clip: float | None = None, name: str = ""
    ) -> Optimizer:
        """Add an optimizer, which `step` will use; `clip` is the largest norm of its gradient."""
        self._before_training("optimizer")
        self._parts.add_optimizer(optimizer, clip, name)
        return optimizer

    def keep(self, **things: Any) -> None:
        """Save these objects in every checkpoint, such as `loop.keep(scheduler=scheduler)`.

        They need `state_dict` and `load_state_dict`. Models and optimizers are saved anyway.
        """
        self._before_training("keep")
        self._parts.state.keep(things)

    def batches(
        self,
        data: Any,
        *,
        collate: Collate | None = None,
        sampler: Any = None,
        batch_sampler: Any = None,
        shuffle: bool = True,
        transform: Callable[[Any], Any] | None = None,
        workers: int | None = None,
        may_drop: bool = False,
        global_batch: int | None = None,
        drop_last: bool = False,
    ) -> Batches:
        """Return the global batches of some data; iterate over them once in each epoch.

        Args:
            data: A data set with an index (`__len__`, `__getitem__`), or a stream: anything that
                can only be iterated. Samples may have any structure.
            collate: Makes a batch of a list of samples; default: torch's own.
            sampler: Decides the order of the samples, as on one GPU.
            batch_sampler: Decides which samples form a global batch, for example by length.
            shuffle: Shuffle the samples in every epoch. A stream keeps its own order.
            transform: A function of each sample of a stream that this replica uses. What the
                stream itself does, every replica does for all samples.
            workers: Processes that read ahead; default: those of the loop.
            may_drop: Accept a collate function that returns fewer rows than samples.
            global_batch: Samples of a batch of these data, over all replicas; default: those of
                the loop.
            drop_last: Leave out the last batch of an epoch if it is smaller than the others.
        """
        self._before_training("batches")
        parts = self._parts
        return make_batches(
            self.settings,
            parts.group,
            parts.state,
            Division(parts.computing.plan, self.rank, parts.checks.pieces),
            self,
            parts.record.checkpoints.finish,
            data,
            collate=collate,
            sampler=sampler,
            batch_sampler=batch_sampler,
            shuffle=shuffle,
            transform=transform,
            workers=workers,
            may_drop=may_drop,
            global_batch=global_batch,
            drop_last=drop_last,
        )

    def _before_training(self, what: str) -> None:
        if self._begun:
            raise RecipeError(
                f"loop.{what} was called after training began, too late for a resumed run. Call "
                "it before `for epoch in loop.epochs(...)`."
            )

    def epochs(self, number: int) -> Iterator[int]:
        """Yield the epochs that are still to be trained: all of them, unless a run resumes.

        A program may call it again, to train another phase of `number` more epochs.
        """
        if number < 1:
            raise PlanError(f"loop.epochs({number}): give 1 or more.")
        first = self._epochs or 0
        self._epochs = last = first + number
        self.begin()
        record = self._parts.record
        while record.epoch < last and not self.over():
            yield record.epoch - first
            # A body that was left by `break` was the last one of the epoch.
            self.after_body(ends_epoch=any(b.left for b in self._parts.state.batches))
            self._parts.warn_of_threads()
            self._call("epoch")
            record.after_epoch()
        if record.epoch < last:
            self.cut_short()

    def begin(self) -> None:
        """Compare the replicas and restore a checkpoint, before the first batch."""
        if self._begun:
            return
        if self._epochs is None:
            raise RecipeError(
                "batches are read outside of loop.epochs: a resumed run would not know where it "
                "is. Write: for epoch in loop.epochs(3): for batch in batches: ..."
            )
        self._begun = True
        self._parts.begin(self._epochs, self.settings)
        if self._parts.record.was_cut_short and self._has_most(self.steps):
            raise FolderError(
                f"{self.folder} has taken {self.steps} steps, and max_steps is "
                f"{self.settings.max_steps}. Give more of them, or leave max_steps out."
            )

    def over(self) -> bool:
        """Return whether `max_steps` batches are done, or training stops early."""
        return self._over_after(self.steps)

    def _over_after(self, steps: int) -> bool:
        return self._has_most(steps) or bool(self._parts.record.goals.lost)

    def _has_most(self, steps: int) -> bool:
        most = self.settings.max_steps
        return most is not None and steps >= most

    def cut_short(self) -> None:
        """Note that `max_steps` ends the run before its last batch: it can be resumed."""
        self._parts.record.cut_short = not self._parts.record.goals.lost

    def before_body(self, *, disturbed: bool = True) -> None:
        """Seed all generators, so that the body draws the same numbers on every replica."""
        if disturbed:
            self._parts.steps.seed_body()

    def after_body(self, *, ends_epoch: bool = False) -> None:
        """Log, save and stop when it is time to."""
        steps = self._parts.steps
        if steps.last is not None:
            samples, steps.last = steps.last.samples, None
            over = self._over_after(self.steps + 1)
            self._parts.record.after_body(samples=samples, ends_epoch=ends_epoch, over=over)

    def step(
        self,
        batch: Batch | Sequence[Batch],
        loss: Loss,
        optimizer: torch.optim.Optimizer | None = None,
    ) -> StepLoss:
        """Compute a loss over the global batch, and let the optimizer change its parameters.

        `loss` is called with what the collate function made of some samples: in exact mode once
        for each shard. It returns (total, count): the sum of the losses, and the number of items
        (samples, tokens, boxes) that it is over. A third value, a dict, holds more sums to log.

        With several batches, `loss` is called with a tuple of what collate made of each; None
        stands for a batch that has no samples in this shard.
        """
        return self._parts.steps.take(batch, loss, optimizer)

    def step_across(
        self,
        batch: Batch | Sequence[Batch],
        encode: Callable[[Any], Any],
        loss: Loss,
        optimizer: torch.optim.Optimizer | None = None,
    ) -> StepLoss:
        """Compute a loss that sees the whole global batch at once, such as a contrastive one.

        `encode` is called with what the collate function made of some samples, and returns a
        tensor, or a tuple or dict of tensors, with one row per sample. `loss` gets the rows of the
        global batch, joined over all replicas, and returns (total, count). Gradients flow back to
        every row.
        """
        return self._parts.steps.take_across(batch, encode, loss, optimizer)

    def evaluate(
        self,
        data: Any,
        measure: Callable[[Any], Any],
        *,
        collate: Collate | None = None,
        batch: int | None = None,
        workers: int = 0,
        prefix: str = "",
    ) -> dict[str, float]:
        """Return the mean of what `measure` returns, over all samples, each counted once.

        `measure` is called with batches of `batch` samples (default: those of a shard), in
        evaluation mode and without gradients. It returns a dict: for each name (sum, count), or
        one value per item. The result goes to metrics.jsonl, with `prefix` before its names.
        """
        record = self._parts.record
        before = record.clock.now
        record.clock.turn_to("evaluation")
        found = self._parts.evaluation(data, collate, batch, workers).means(measure)
        record.clock.turn_to(before)
        record.in_body = self._parts.steps.last is not None
        named = {f"{prefix}{name}": value for name, value in found.items()}
        record.evaluated(named)
        self.before_body()
        self._call("evaluate", named)
        return found

    def collect(
        self,
        data: Any,
        function: Callable[[Any], Any],
        *,
        collate: Collate | None = None,
        batch: int | None = None,
        workers: int = 0,
    ) -> Any:
        """Return what `function` returns for all samples, in their order, on every replica.

        Use it for metrics over the whole data set, such as F1 or the area under a curve.
        """
        clock = self._parts.record.clock
        before = clock.now
        clock.turn_to("evaluation")
        found = self._parts.evaluation(data, collate, batch, workers).collected(function)
        clock.turn_to(before)
        self.before_body()
        return found

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Write weights and summary, and leave the other replicas."""
        _open.clear()
        record = self._parts.record
        try:
            if error is None:
                self.after_body(ends_epoch=True)
                record.summary["speed"] = self._parts.described_speed()
                self.summary = record.end()
                self._call("end")
                finished.append(self.summary)
        except BaseException as failure:
            self._leave(failure)
            raise
        self._leave(error)
        if error is None:
            # Do not leave after an error: the other replicas may still wait in an exchange.
            self._parts.group.leave()

    def _leave(self, error: BaseException | None) -> None:
        self._parts.record.leave(error)
        # `lockstep train` writes the report itself: of a run that was killed, too.
        if self._alone and self.is_first and self._parts.record.owned:
            self._write_report()

    def _write_report(self) -> None:
        """Write a page about the run. The engine has none; `lockstep.Loop` does."""
