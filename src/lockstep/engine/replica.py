"""One replica: the model, its optimizer, its part of the data, and the exchange of gradients."""

from __future__ import annotations

import hashlib
import math
from collections import deque
from collections.abc import Iterator
from functools import partial
from itertools import islice
from typing import Any

import torch
import torch.utils.deterministic
from torch import Tensor
from torch.nn.modules.batchnorm import _BatchNorm

from lockstep.console import Progress
from lockstep.data import (
    Arrival,
    EpochKeys,
    Finish,
    Request,
    Watch,
    make_loader,
)
from lockstep.data.batches import in_channels_last
from lockstep.engine.exchange.connect import connect
from lockstep.engine.exchange.noise import RunNoise
from lockstep.engine.group import Group
from lockstep.engine.recipe.job import Job
from lockstep.engine.recipe.prepare import check_model, configure_torch, load_data, seed_all, some
from lockstep.engine.recipe.recipe import build
from lockstep.engine.run.checkpoint import Checkpoint, pack_optimizer, unpack_optimizer
from lockstep.engine.run.run_folder import state_of
from lockstep.engine.sampler import GlobalOrder, Part, Step
from lockstep.engine.step.metrics import Evaluation
from lockstep.engine.step.shard_norms import Lengths
from lockstep.engine.step.timeline import Timeline
from lockstep.engine.step.update import Update
from lockstep.errors import CheckpointError, DataError, RecipeError
from lockstep.keys import key
from lockstep.layers.batch_norm import ShardBatchNorm
from lockstep.layers.per_shard import per_shard, unkeyed
from lockstep.layers.shards import Shards
from lockstep.scaling.noise import Moments
from lockstep.scaling.rates.schedules import warmed


class Replica:
    """Everything that one process holds, built from the job alone."""

    def __init__(self, job: Job, group: Group, progress: Progress) -> None:
        self.job, self.group, self.recipe, self.plan = job, group, job.recipe, job.plan
        self.progress = progress
        recipe, device = job.recipe, group.device
        configure_torch(job, device)
        with group.first_on_machine():
            seed_all(key(recipe.seed, "data"))
            self.data = load_data(recipe, progress)
        self._check_sizes()

        seed_all(key(recipe.seed, "weights"))
        module = build(f"the model of {recipe.name}", recipe.model)
        check_model(module)
        module = module.to(device)
        if recipe.channels_last:
            for p in module.parameters():
                if p.dim() == 4:
                    p.data = in_channels_last(p.data)
        self.shards = Shards(
            self.plan.shards_per_replica,
            device,
            first=group.world.rank * self.plan.shards_per_replica,
            seed=recipe.seed,
            channels_last=recipe.channels_last,
        )
        self.epoch = EpochKeys(recipe.seed, device)
        self.module = per_shard(
            module, self.shards, group.sum if recipe.batch_norm == "sync" else None
        )
        self.norms = [m for m in self.module.modules() if isinstance(m, ShardBatchNorm)]
        self.norms = [m for m in self.norms if m.track_running_stats]
        if not job.exact and (odd := unkeyed(self.module)):
            progress.warn(
                f"{', '.join(odd)}: randomness of these layers is keyed per shard in exact mode "
                "only; in fast mode it changes with the number of replicas."
            )
        self.timeline = Timeline(device) if job.timeline else None
        self.watch = self.timeline or Watch()
        self.update = Update(recipe, self.module, device, job.exact)
        self.checked = False
        self.path = ""
        """How the steps are executed, once that has been chosen."""
        self.path_peak = 0
        """Bytes that a step takes on the path that was chosen, if the allocator cannot tell."""
        self.buffers = {n: b.clone() for n, b in self._plain_buffers()}
        if self.timeline is not None:
            self.timeline.watch_layers(self.module)
        whole = math.ceil(recipe.warmup * len(self.data.train) / recipe.global_batch)
        self.noise: RunNoise | None = None
        if job.noise:
            self.noise = RunNoise(
                self.update.optimizer,
                self.update.parameters,
                group.world.size,
                self.plan.accumulation,
                recipe.global_batch,
                exact=job.exact,
            )
        exchange = connect(job, group, self.module, self.timeline, self.noise, whole)
        self.model, self.reduce, self.powersgd = exchange.model, exchange.reduce, exchange.powersgd
        self.terms = exchange.terms
        if group.alone and job.wire != "fp32":
            progress.warn(f"--wire {job.wire} has no effect on one replica: it sends nothing.")

        finish = Finish(recipe.seed, recipe.augment, self.data.prepare, recipe.channels_last)
        plain = Finish(recipe.seed, (), self.data.prepare, recipe.channels_last)
        load = partial(make_loader, device=device, workers=job.workers, resident=job.resident)
        self.loader = load(self.data.train, finish=finish, watch=self.watch)
        test_loader = load(self.data.test, finish=plain, watch=Watch())
        self.evaluation = Evaluation(test_loader, len(self.data.test), recipe, group)
        self.order = GlobalOrder(len(self.data.train), recipe.global_batch, recipe.seed)
        self.growth = recipe.growth(len(self.data.train))
        self.lengths = Lengths(self)
        self.rate = warmed(recipe.schedule, recipe.warmup / recipe.epochs, recipe.warmup_start)

    def _check_sizes(self) -> None:
        sizes = (len(self.data.train), len(self.data.test))
        if len(set(self.group.objects(sizes))) > 1:
            raise DataError(
                f"the data of {self.recipe.name} have other sizes on other replicas: their "
                "function depends on something besides the seed."
            )

    def _plain_buffers(self) -> Iterator[tuple[str, Tensor]]:
        """Buffers that no layer of ours keeps per shard."""
        own = {
            id(b) for m in self.module.modules() if isinstance(m, _BatchNorm) for b in m.buffers()
        }
        return ((n, b) for n, b in self.module.named_buffers() if id(b) not in own)

    def check_first_step(self) -> None:
        """After the first backward pass: refuse what would differ on another number of replicas."""
        self.checked = True
        named = self.module.named_parameters()
        unused = [name for name, p in named if p.requires_grad and p.grad is None]
        if unused:
            raise RecipeError(
                f"the loss does not depend on {some(unused)}: DDP would wait for their gradients. "
                "Take them out of the model, or freeze them with requires_grad_(False)."
            )
        if not self.job.exact and not unkeyed(self.module) and self._draws():
            self.progress.warn(
                "the model draws from torch's own generator (functional dropout, torch.rand): "
                "keyed per shard in exact mode only; in fast mode it changes with the number of "
                "replicas. nn.Dropout does not."
            )
        changed = [n for n, b in self._plain_buffers() if not torch.equal(b, self.buffers[n])]
        self.buffers.clear()
        if not changed:
            return
        text = (
            f"the forward pass changes {some(changed)}, once for each part of the batch: that "
            "depends on the number of replicas."
        )
        if self.job.exact:
            raise RecipeError(f"{text} Exact mode cannot keep its promise with this model.")
        self.progress.warn(text)

    def check_first_update(self, before: dict[str, Any]) -> None:
        """After the first update: say what a checkpoint would miss."""
        after = self.update.uncounted()
        if changed := [name for name, value in after.items() if before.get(name) != value]:
            kind = type(self.update.optimizer).__name__
            self.progress.warn(
                f"{kind} counts in {some([f'{kind}.{name}' for name in changed])}, which is in no "
                "checkpoint: a resumed run would differ. Keep it in the optimizer's state[p]."
            )

    def is_over(self, done: int) -> bool:
        """Whether no step is left after so many."""
        most = self.job.max_steps
        limited = most is not None and done >= most
        return limited or next(self.growth.strides(done), None) is None

    def steps(self, start: int) -> Iterator[tuple[Step, list[Arrival]]]:
        """Each step from `start` on, with what arrived for its parts."""
        # Loaders read ahead: keep the steps whose data are on their way.
        on_the_way: deque[Step] = deque()
        last = self.job.max_steps
        strides = self.growth.strides(start)
        if last is not None:
            strides = islice(strides, max(0, last - start))

        def requests() -> Iterator[Request]:
            for step in self.order.steps(
                self.plan,
                self.group.world.rank,
                strides,
                self.loader.index_device,
                together=not self.job.exact and self.job.micro_batch is None,
            ):
                on_the_way.append(step)
                yield from (part.request for part in step.parts)

        arrivals = self.loader.arrivals(requests())
        over = self.is_over(start)
        while not over:
            if self.timeline:
                self.timeline.begin()
            first = next(arrivals)
            step = on_the_way.popleft()
            if step.number + 1 == last:
                step = step._replace(stride=step.stride._replace(last=True))
            over = step.stride.last
            yield step, [first, *islice(arrivals, len(step.parts) - 1)]

    def noise_scale(self) -> dict[str, Any] | None:
        """That of the run so far, if it is measured; all replicas ask together."""
        if self.noise is not None:
            return self.noise.estimate()
        return self.lengths.estimate() if self.growth.grows else None

    def follow(self, step: Step) -> None:
        """After a step: let the batch follow what was measured."""
        if step.stride.ends_period:
            self.growth.measured.append(self.lengths.told())

    def rate_of(self, step: Step) -> float:
        """The learning rate of `step`: of progress, and of what the step is worth."""
        # The middle of the step, so that a warmup does not start with a step of rate zero.
        rate = self.recipe.learning_rate * self.rate(step.stride.progress)
        # As the rates of SGD go with the batch, or those of all others.
        gain = step.stride.gain
        return rate * (gain if isinstance(self.update.optimizer, torch.optim.SGD) else gain**0.5)

    def enter(self, step: Step, part: Part) -> None:
        """Tell batch norm, dropout and torch's own generator which shards come next."""
        first = part.shards.start - self.group.world.rank * self.plan.shards_per_replica
        rows = range(first, first + len(part.shards))
        self.shards.enter(rows, part.sizes, part.counts, part.round, part.rounds)
        if self.group.device.type == "cuda" and torch.cuda.is_current_stream_capturing():
            # Seeds are no part of a recording; whoever replays it sets them.
            return
        # Not torch.manual_seed: before CUDA is used, it notes a stack trace at every call.
        seed = self.generator_seed(step, part)
        torch.default_generator.manual_seed(seed)
        if self.group.device.type == "cuda":
            torch.cuda.default_generators[self.group.device.index or 0].manual_seed(seed)

    def _draws(self) -> bool:
        """Whether anything has drawn from torch's own generator since it was last seeded."""
        if self.group.device.type == "cuda":
            return torch.cuda.default_generators[self.group.device.index or 0].get_offset() > 0
        fresh = torch.Generator().manual_seed(torch.default_generator.initial_seed())
        return not torch.equal(fresh.get_state(), torch.default_generator.get_state())

    def generator_seed(self, step: Step, part: Part) -> int:
        """For layers that draw from torch's own generator."""
        return key(self.recipe.seed, step.stride.round + part.round, part.shards.start, "torch")

    def evaluate(self) -> dict[str, float]:
        """Loss and metrics on the test data."""
        self.merge_batch_norm()
        return self.evaluation(self.module)

    def merge_batch_norm(self) -> dict[str, Tensor]:
        """Set running statistics to the mean over all shards; return those of each shard."""
        rows = {}
        for number, norm in enumerate(self.norms):
            for own, merged in (("shard_mean", norm.running_mean), ("shard_var", norm.running_var)):
                every = self.group.rows(getattr(norm, own))
                rows[f"norm/{number}/{own}"] = every
                assert merged is not None
                merged.copy_(every.double().mean(0))
        return rows

    def snapshot(self) -> Checkpoint:
        """The state after the last step; all replicas take part."""
        rows = self.merge_batch_norm()
        tensors, numbers = pack_optimizer(self.update.optimizer)
        tensors |= {f"model/{name}": tensor for name, tensor in state_of(self.module).items()}
        if self.powersgd is not None:
            tensors |= {f"wire/{n}": t for n, t in self.powersgd.state(self.module).items()}
        facts: dict[str, Any] = {"optimizer": numbers}
        if self.growth.grows:
            self.lengths.told()
            noise = self.lengths.noise.state_dict()
            # A copy: it is written while the training goes on.
            facts["growth"] = {"measured": list(self.growth.measured), "noise": noise}
        return Checkpoint(tensors | rows, facts)

    def restore(self, checkpoint: Checkpoint) -> None:
        """Take over the state of a snapshot, made on any number of replicas."""
        tensors = checkpoint.tensors
        own = state_of(self.module)
        saved = {n.removeprefix("model/"): t for n, t in tensors.items() if n.startswith("model/")}
        if {n: t.shape for n, t in own.items()} != {n: t.shape for n, t in saved.items()}:
            odd = sorted(own.keys() ^ saved.keys()) or ["shapes"]
            raise CheckpointError(
                f"the checkpoint is of another model: {', '.join(odd[:5])} differ."
            )
        for name, tensor in own.items():
            tensor.copy_(saved[name])
        unpack_optimizer(self.update.optimizer, tensors, checkpoint.facts["optimizer"])
        kept = {n.removeprefix("wire/"): t for n, t in tensors.items() if n.startswith("wire/")}
        if self.powersgd is not None:
            self.powersgd.load(self.module, kept, int(checkpoint.facts["step"]))
        elif kept:
            self.progress.warn(
                "The checkpoint holds gradients that PowerSGD had not sent yet: they are dropped. "
                "To keep them, resume with --wire powersgd on two replicas or more."
            )
        if self.growth.grows:
            grown = checkpoint.facts["growth"]
            self.growth.measured = [Moments(*values) for values in grown["measured"]]
            self.lengths.noise.load_state_dict(grown["noise"])
        first = self.group.world.rank * self.plan.shards_per_replica
        for number, norm in enumerate(self.norms):
            for name in ("shard_mean", "shard_var"):
                every = tensors[f"norm/{number}/{name}"]
                getattr(norm, name).copy_(every[first : first + self.plan.shards_per_replica])

    def digest(self) -> str:
        """A hash of all parameters: equal on replicas that are in step."""
        digest = hashlib.sha256()
        for p in self.module.parameters():
            content = p.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
            digest.update(content.numpy().data)
        return digest.hexdigest()

    def is_finite(self) -> bool:
        """Whether all weights are numbers."""
        weights = [p.detach() for p in self.module.parameters() if p.numel()]
        # The largest element: squares of finite weights may overflow.
        norms = torch._foreach_norm(weights, float("inf"))
        return bool(torch.stack([n.float() for n in norms]).isfinite().all())
