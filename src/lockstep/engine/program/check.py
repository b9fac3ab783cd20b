"""Check by computing again that a result depends on nothing but its shard.

In exact mode another replica computes a shard a second time now and then, and both compare the bits
of the gradient. In fast mode such a step is computed in another division as well. These checks know
no rules: they find code that counts, that draws from a generator of its own, that knows its rank,
that mixes samples, and a device that makes errors.
"""

from __future__ import annotations

import torch
from torch import Tensor

from lockstep.console import Progress
from lockstep.data.nested import digest
from lockstep.engine.checks.fingerprint import TOLERANCE, fingerprint, relative_distance, sketch
from lockstep.engine.checks.messages import computed_by, gradients_differ, samples_differ
from lockstep.engine.checks.suspects import Suspects, why_not
from lockstep.engine.group import Group
from lockstep.engine.program.batches import Batch, Piece
from lockstep.engine.program.step import Computing, Loss, Stepper
from lockstep.engine.program.tree import Gradients, ShardTree
from lockstep.engine.recipe.plan import Plan
from lockstep.engine.recipe.prepare import some
from lockstep.errors import RecipeError, Untrusted
from lockstep.keys import key

FIRST_EPOCHS = 3
"""Epochs whose first batch is checked: a data set that remembers shows it in the second."""

RARER = 4
"""Fast mode checks less often by this factor: it computes as much as five steps of a replica."""


def fingerprints(gradients: Gradients) -> list[int]:
    """Return the hash of each parameter's gradient; 0 for none."""
    return [0 if gradient is None else int(fingerprint(gradient)) for gradient in gradients]


Seen = tuple[str, Tensor]
"""A hash of the samples of a shard, and a sketch of its gradient."""
Noted = dict[int, tuple[str, list[int]]]
"""For some shards, a hash of their samples, and one of each parameter's gradient."""


class Checks:
    """Decides what is computed again, and compares."""

    def __init__(
        self, plan: Plan, group: Group, seed: int, every: int, progress: Progress, *, exact: bool
    ) -> None:
        self.plan, self.group, self.seed, self.every = plan, group, seed, every
        self.progress, self.exact = progress, exact
        self.checked = 0
        """Shards that were computed twice so far."""
        self.names: dict[Tensor, str] = {}
        """The name of each parameter, for messages."""
        self.may_change: tuple[str, ...] = ()
        """Variables that the program may change while it computes a shard."""
        self.warned_of_threads = False
        self.compared_divisions: set[tuple[str, int, int]] = set()
        """Losses and batches that were compared in fast mode."""
        self.dependent: set[str] = set()
        """Losses that were found to depend on how the batch is divided."""
        self._last: tuple[tuple[int, int], list[int]] = ((-1, -1), [])
        self.first_batches = {(0, 0)}
        """Epoch and number of the batches with which a run, or its continuation, begins."""

    def begin_with(self, epoch: int, batch: int) -> None:
        """Check the batch with which a resumed run begins."""
        self.first_batches.add((epoch, batch))
        self._last = ((-1, -1), [])

    def _owner(self, shard: int) -> int:
        return shard // self.plan.shards_per_replica

    def _checked_shards(self, epoch: int, batch: int) -> list[int]:
        """Return the shards that are computed twice in a batch, the same on every replica."""
        if self._last[0] != (epoch, batch):
            self._last = ((epoch, batch), self._drawn(epoch, batch))
        return self._last[1]

    def _drawn(self, epoch: int, batch: int) -> list[int]:
        own, size = self.plan.shards_per_replica, self.plan.replicas
        if not self.every:
            return []
        if (epoch, batch) in self.first_batches or (batch == 0 and epoch < FIRST_EPOCHS):
            return [rank * own for rank in range(size)]
        number = key(self.seed, epoch, batch, "check")
        every = self.every if self.exact else RARER * self.every
        return [number // every % self.plan.shards] if number % every == 0 else []

    def _checked(self, batch: Batch) -> list[int]:
        """Return the shards of a batch, or of all that it was joined from, that are checked."""
        if not batch.joined:
            return self._checked_shards(batch.epoch, batch.number)
        first, *others = [self._checked_shards(one.epoch, one.number) for one in batch.joined]
        return [shard for shard in first if all(shard in other for other in others)]

    def pieces(self, epoch: int, batch: int) -> list[range]:
        """Return what this replica computes to compare in a batch."""
        rank, size = self.group.world.rank, self.plan.replicas
        if not self.exact:
            if self.plan.shards < 2 or not self._checked_shards(epoch, batch):
                return []
            return self._divisions()
        found = self._checked_shards(epoch, batch)
        return [range(s, s + 1) for s in found if (self._owner(s) + 1) % size == rank]

    def _divisions(self) -> list[range]:
        """Return two shards together and one by one, and one that another replica computes, too."""
        rank = self.group.world.rank
        first, other = self._pair(rank), self._pair((rank + 1) % self.plan.replicas)
        places = ((first, 2), (first, 1), (first + 1, 1), (other, 1))
        return [range(start, start + number) for start, number in places]

    def _pair(self, rank: int) -> int:
        """Return the first of the two shards that a replica computes in another division."""
        return rank * self.plan.shards_per_replica // 2 * 2

    def is_due(self, batch: Batch) -> bool:
        """Return whether something of a batch is computed twice."""
        return bool(self._checked(batch))

    def watches(self, batch: Batch) -> list[int]:
        """Return the shards of this replica that another one computes too."""
        if not self.exact:
            return []
        if not (found := self._checked(batch)):
            return []
        mine = self.plan.parts(self.group.world.rank)
        return [s for s in found if any(s in part for part in mine)]

    def compare_shards(
        self, batch: Batch, loss: Loss, call: int, stepper: Stepper, noted: Noted
    ) -> None:
        """Compute the shards of `batch.checks` again; raise if their bits differ from the first."""
        if not self.exact or not (due := self._checked(batch)):
            return
        again: Noted = {}
        for piece in batch.checks:
            if piece.shards.start not in due:
                continue
            gradients = _gradients(stepper.computing, piece, loss, call, stepper)
            again[piece.shards.start] = (digest(piece.content), fingerprints(gradients))
        every = self.group.objects((noted, again))
        first = {shard: found for one, _ in every for shard, found in one.items()}
        for rank, (_, second) in enumerate(every):
            for shard, found in second.items():
                self.checked += 1
                if shard in first and found != first[shard]:
                    changed = self._changed_by(batch, loss, call, stepper)
                    self._refuse(call, shard, rank, first[shard], found, stepper, changed)
        if self._is_first(batch):
            changed = self._changed_by(batch, loss, call, stepper)
            if odd := [name for name in changed if name not in self.may_change]:
                raise RecipeError(why_not(odd))

    def _is_first(self, batch: Batch) -> bool:
        return (batch.epoch, batch.number) in self.first_batches

    def _changed_by(self, batch: Batch, loss: Loss, call: int, stepper: Stepper) -> list[str]:
        """Return the names of what another computation changes; all replicas call this."""
        own: list[str] = []
        for piece in (*batch.checks, *batch.pieces)[:1]:
            own = _changed_again(piece, loss, call, stepper)
        return sorted({name for names in self.group.objects(own) for name in names})

    def _refuse(
        self,
        call: int,
        shard: int,
        rank: int,
        first: tuple[str, list[int]],
        second: tuple[str, list[int]],
        stepper: Stepper,
        changed: list[str],
    ) -> None:
        pairs = zip(stepper.used.parameters, first[1], second[1], strict=True)
        differing = [self.names.get(p, "a parameter") for p, a, b in pairs if a != b]
        who, place = computed_by(self._owner(shard), rank), f"step {call + 1}, shard {shard}"
        if first[0] != second[0]:
            raise Untrusted(samples_differ(place, who, "collate function"))
        raise Untrusted(gradients_differ(place, who, "program", differing, changed))

    def compare_divisions(self, batch: Batch, loss: Loss, call: int, stepper: Stepper) -> None:
        """In fast mode, warn if the gradient depends on how the batch is divided."""
        name = getattr(loss, "__name__", type(loss).__name__)
        place = (name, batch.epoch, batch.number)
        if self.exact or self.plan.shards < 2 or not self.is_due(batch):
            return
        if name in self.dependent or place in self.compared_divisions:
            return
        self.compared_divisions.add(place)
        apart: float | None = None
        changed: list[str] = []
        own: tuple[Seen, Seen] | None = None
        # A small last batch may leave shards without samples.
        if [piece.shards for piece in batch.checks] == self._divisions():
            try:
                apart, own = _divided(batch.checks, loss, call, stepper)
            except torch.OutOfMemoryError:
                if self._is_first(batch):
                    raise
                # Training fits into the memory; this check, which comes now and then, does not.
                torch.cuda.empty_cache()
            if self._is_first(batch):
                changed = _changed_again(batch.checks[1], loss, call, stepper)
        if odd := [name for name in changed if name not in self.may_change]:
            self.progress.warn(
                f"computing a part of the batch changes {some(odd)}. If the weights depend on it, "
                "they will change with the number of replicas, which decides the parts. If "
                f"only a log does, may_change={odd!r} allows it."
            )
        every = self.group.objects((apart, own))
        worst = max((a for a, _ in every if a is not None), default=0.0)
        if (text := self._differing([seen for _, seen in every])) is not None:
            self.dependent.add(name)
            self.progress.warn(f"step {call + 1}, {name}: {text}")
        elif worst > TOLERANCE:
            self.dependent.add(name)
            self.progress.warn(
                f"step {call + 1}: the gradient of {name} depends on how the batch is divided: two "
                f"shards computed together differ by {worst:.1%} from the same shards one by one. "
                "Fast mode will give a different result on a different number of replicas. Causes: "
                "a loss or a layer that mixes samples (a mean over the batch, in-batch negatives, "
                "mixup), a count that does not match the sum, random numbers drawn in the forward "
                "pass, or a variable that remembers earlier batches. Exact mode keeps the division "
                "fixed; loop.step_across computes a loss over the whole batch."
            )

    @staticmethod
    def _differing(every: list[tuple[Seen, Seen] | None]) -> str | None:
        """Return how a shard differs that two replicas computed; all replicas know all of it."""
        for rank, seen in enumerate(every):
            owner = (rank + 1) % len(every)
            first = every[owner]
            if seen is None or first is None:
                continue
            (samples, gradient), (again, repeated) = first[0], seen[1]
            who = f"replicas {owner} and {rank}" if owner != rank else f"replica {owner} twice"
            end = (
                "Fast mode will give a different result on a different number of replicas, and "
                "exact mode will refuse this program."
            )
            if samples != again:
                return (
                    f"read by {who}, the samples of a shard differ. The data set or the collate "
                    "function remembers what it read before, draws from a generator of its own, or "
                    f"depends on its process. {end}"
                )
            apart = relative_distance([gradient], [[repeated]])
            if apart > TOLERANCE:
                return (
                    f"computed by {who}, the gradients of a shard differ by about {apart:.1%}. The "
                    "code may remember earlier batches or evaluations, draw from a generator of "
                    f"its own, or depend on its rank. {end}"
                )
        return None


def _divided(
    checks: list[Piece], loss: Loss, call: int, stepper: Stepper
) -> tuple[float, tuple[Seen, Seen]]:
    """Return how far two shards together are from the same one by one, and what was seen."""

    def computed(number: int) -> Gradients:
        return _gradients(stepper.computing, checks[number], loss, call, stepper)

    # One after the other: a large model has no room for many gradients.
    apart = computed(1)
    mine = digest(checks[1].content), sketch(apart)
    tree = ShardTree(len(apart))
    tree.add(apart)
    tree.add(computed(2))
    distance = relative_distance(computed(0), [tree.total()])
    return distance, (mine, (digest(checks[3].content), sketch(computed(3))))


def _changed_again(piece: Piece, loss: Loss, call: int, stepper: Stepper) -> list[str]:
    """Return the names of what changes if a piece is computed once more.

    It is computed twice: what the first time creates or remembers may be the same ever after.
    """
    _gradients(stepper.computing, piece, loss, call, stepper)
    suspects = Suspects([loss], stepper.computing.modules)
    _gradients(stepper.computing, piece, loss, call, stepper)
    return suspects.changed()


def _gradients(
    computing: Computing, piece: Piece, loss: Loss, call: int, stepper: Stepper
) -> Gradients:
    """Compute a piece once more, without a trace in running statistics."""
    computing.enter(call, piece, again=True)
    return computing.backward(computing.loss(loss, piece.content), stepper.used)
