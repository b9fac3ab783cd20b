"""The model of one replica, with batch norm, dropout and random numbers kept per shard."""

from __future__ import annotations

import hashlib

import torch
from torch import Tensor, nn

from lockstep.data.batches import in_channels_last
from lockstep.data.keyed import seed_generators
from lockstep.engine.checks.fingerprint import fingerprint
from lockstep.engine.group import Group
from lockstep.engine.recipe.job import Job
from lockstep.engine.recipe.prepare import check_model, seed_all, some
from lockstep.engine.recipe.recipe import BatchNorm, build
from lockstep.engine.run.run_folder import state_of
from lockstep.engine.sampler import Part, Step
from lockstep.errors import CheckpointError, Untrusted
from lockstep.keys import key
from lockstep.layers.batch_norm import ShardBatchNorm
from lockstep.layers.per_shard import per_shard
from lockstep.layers.shards import Shards


class ShardedModel:
    """A model on the device of a replica, whose batch norm and dropout work per shard."""

    def __init__(
        self, module: nn.Module, shards: Shards, group: Group, *, synced: bool = False
    ) -> None:
        """Convert `module` in place; with `synced`, batch norm works on the global batch."""
        self.group, self.device, self.shards = group, group.device, shards
        self.module: nn.Module = per_shard(module, shards, group.sum if synced else None)
        norms = [m for m in self.module.modules() if isinstance(m, ShardBatchNorm)]
        self.norms = [m for m in norms if m.track_running_stats]
        for norm in self.norms:
            norm.remember()

    def merge_batch_norm(self) -> None:
        """Set running statistics to the mean over all shards; all replicas take part."""
        for norm, (mean, var) in zip(self.norms, self._statistics(), strict=True):
            assert norm.running_mean is not None
            assert norm.running_var is not None
            norm.running_mean.copy_(mean.double().mean(0))
            norm.running_var.copy_(var.double().mean(0))
            norm.remember()

    def _statistics(self) -> list[tuple[Tensor, Tensor]]:
        """Return the mean and variance of every shard, for each batch norm."""
        for norm in self.norms:
            norm.adopt()
        rows = self.group.rows
        return [(rows(norm.shard_mean), rows(norm.shard_var)) for norm in self.norms]

    def spread_batch_norm(self) -> None:
        """Let every shard start from the running statistics, such as those of a file."""
        for norm in self.norms:
            norm.spread()

    def state(self) -> dict[str, Tensor]:
        """Return everything that a checkpoint must hold; all replicas take part.

        Running statistics are as the program sees them. To merge them here would make what it sees
        depend on when checkpoints are written.
        """
        rows: dict[str, Tensor] = {}
        for number, (mean, var) in enumerate(self._statistics()):
            rows |= {f"norm/{number}/shard_mean": mean, f"norm/{number}/shard_var": var}
        return rows | {f"model/{name}": tensor for name, tensor in state_of(self.module).items()}

    def load(self, tensors: dict[str, Tensor]) -> None:
        """Restore a state that was saved on any number of replicas."""
        own = state_of(self.module)
        saved = {n.removeprefix("model/"): t for n, t in tensors.items() if n.startswith("model/")}
        if {n: t.shape for n, t in own.items()} != {n: t.shape for n, t in saved.items()}:
            odd = sorted(own.keys() ^ saved.keys()) or ["shapes"]
            raise CheckpointError(
                f"the checkpoint is of another model: {', '.join(odd[:5])} differ."
            )
        for name, tensor in own.items():
            tensor.copy_(saved[name])
        mine = slice(self.shards.first, self.shards.first + self.shards.local)
        for number, norm in enumerate(self.norms):
            for name in ("shard_mean", "shard_var"):
                getattr(norm, name).copy_(tensors[f"norm/{number}/{name}"][mine])
            norm.remember()

    def modes(self) -> dict[str, list[str]]:
        """Return which parameters are frozen, and which layers are in evaluation mode."""
        return {
            "frozen": [name for name, p in self.module.named_parameters() if not p.requires_grad],
            "evaluating": [name for name, m in self.module.named_modules() if not m.training],
        }

    def set_modes(self, modes: dict[str, list[str]] | None) -> None:
        """Freeze and switch as `modes` returned it: a program may have unfrozen layers midway."""
        if modes is None:
            # A checkpoint of an earlier version.
            return
        frozen, evaluating = (set(modes[name]) for name in ("frozen", "evaluating"))
        for name, p in self.module.named_parameters():
            if p.is_floating_point() or p.is_complex():
                p.requires_grad_(name not in frozen)
        for name, layer in self.module.named_modules():
            # Not layer.train(), which would switch all layers inside it.
            layer.training = name not in evaluating

    def refuse_drift(self, step: int, name: str = "") -> None:
        """Refuse weights that have become different on some replicas; all call this together."""
        own = {f"{name}{place}": int(fingerprint(p)) for place, p in self.module.named_parameters()}
        every = self.group.objects(own, "compare weights")
        if odd := [place for place in own if any(one.get(place) != own[place] for one in every)]:
            raise Untrusted(
                f"the replicas have different weights after step {step}: {some(odd)}. Something "
                "changes them on some replicas only: an optimizer that draws from a generator "
                "of its own, a hook, code that knows its rank. The result could not be trusted, "
                "and was not saved."
            )

    def digest(self) -> str:
        """Return a hash of all parameters: equal on replicas that agree."""
        digest = hashlib.sha256()
        for p in self.module.parameters():
            content = p.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
            digest.update(content.numpy().data)
        return digest.hexdigest()

    def is_finite(self) -> bool:
        """Tell whether all weights are numbers."""
        weights = [p.detach() for p in self.module.parameters() if p.numel()]
        # The largest element: squares of finite weights may overflow.
        norms = torch._foreach_norm(weights, float("inf"))
        return bool(torch.stack([n.float() for n in norms]).isfinite().all())


class RecipeModel(ShardedModel):
    """The model of a recipe, with random numbers for each step and part."""

    def __init__(self, job: Job, group: Group) -> None:
        recipe, plan = job.recipe, job.plan
        self.seed = recipe.seed
        seed_all(key(recipe.seed, "weights"))
        module = build(f"the model of {recipe.name}", recipe.model)
        check_model(module)
        module = module.to(group.device)
        if recipe.channels_last:
            for p in module.parameters():
                if p.dim() == 4:
                    p.data = in_channels_last(p.data)
        shards = Shards(
            plan.shards_per_replica,
            group.device,
            first=group.world.rank * plan.shards_per_replica,
            seed=recipe.seed,
            channels_last=recipe.channels_last,
        )
        super().__init__(module, shards, group, synced=recipe.batch_norm is BatchNorm.SYNC)

    @property
    def step_key(self) -> Tensor | None:
        """Where layers read the key of a step's random numbers; None if no layer draws any."""
        return self.shards.step if self.shards.random else None

    def turn_to(self, step: Step) -> None:
        """Draw the random numbers of `step`: others than those of the step before."""
        self.shards.turn_to(step.stride.round)

    def key_of(self, step: Step) -> int:
        """Return what `step_key` must hold in `step`."""
        return self.shards.step_key(step.stride.round)

    def enter(self, step: Step, part: Part) -> None:
        """Set batch norm, dropout and all generators to the shards that come next."""
        first = part.shards.start - self.shards.first
        rows = range(first, first + len(part.shards))
        self.shards.enter(rows, part.sizes, part.counts, part.round, part.rounds)
        if self.device.type == "cuda" and torch.cuda.is_current_stream_capturing():
            # A recording holds no seeds; they are set before each replay.
            return
        seed_generators(self.generator_seed(step, part), self.device)

    def visit(self, step: Step, shard: int, size: int) -> None:
        """Set everything to one shard, of any replica, to compute it once more without a trace."""
        self.shards.turn_to(step.stride.round)
        self.shards.visit(range(shard, shard + 1), (size,))
        seed_generators(key(self.seed, step.stride.round, shard, "torch"), self.device)

    def seed_update(self, step: Step) -> None:
        """Set all generators for an optimizer that draws, the same on every replica."""
        seed_generators(key(self.seed, step.stride.round, "update"), self.device)

    def generator_seed(self, step: Step, part: Part) -> int:
        """Return the seed for code that draws from Python's, NumPy's or torch's own generator."""
        return key(self.seed, step.stride.round + part.round, part.shards.start, "torch")

    @property
    def cuda_generator(self) -> torch.Generator:
        """The generator of the device, which must be a GPU."""
        return torch.cuda.default_generators[self.device.index or 0]
