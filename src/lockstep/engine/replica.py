"""One replica: the parts that one process builds from its job, and the state that it saves."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from torch import Tensor

from lockstep.console import Progress
from lockstep.data import Arrival
from lockstep.engine.checks.buffers import BufferWatch
from lockstep.engine.checks.lone_shards import LoneShards
from lockstep.engine.checks.suspects import asks_for_worker
from lockstep.engine.exchange.connect import connect
from lockstep.engine.exchange.noise import RunNoise
from lockstep.engine.feed import Feed, load_shared_data
from lockstep.engine.group import Group
from lockstep.engine.model import RecipeModel
from lockstep.engine.recipe.job import Job
from lockstep.engine.recipe.prepare import configure_torch
from lockstep.engine.recipe.recipe import Precision
from lockstep.engine.run.checkpoint import Checkpoint, pack_optimizer, unpack_optimizer
from lockstep.engine.run.details import Details
from lockstep.engine.sampler import Step
from lockstep.engine.step.first_step import FirstStep
from lockstep.engine.step.metrics import Evaluation
from lockstep.engine.step.shard_norms import ShardNorms
from lockstep.engine.step.spot_check import SpotCheck
from lockstep.engine.step.timeline import StepWatch, Timeline
from lockstep.engine.step.update import Update


class Replica:
    """The parts of one process. A step uses them one by one; they do not know each other."""

    def __init__(self, job: Job, group: Group, progress: Progress) -> None:
        self.recipe, self.device, self.alone = job.recipe, group.device, group.alone
        self.progress = progress
        recipe = job.recipe
        configure_torch(
            group.device,
            threads=job.threads,
            precision=Precision(recipe.precision),
            exact=job.exact,
        )
        data = load_shared_data(job, group, progress)
        if job.exact and (text := asks_for_worker(data.train)):
            progress.warn(text)
        self.model = RecipeModel(job, group)
        timeline = Timeline(group.device) if job.timeline else None
        self.watch: StepWatch = timeline or StepWatch()
        """Measures the parts of a step, if the job asks for a timeline."""
        self.update = Update(recipe, self.model.module, group.device, job.exact)
        self.first_step = FirstStep(self.model, self.update, progress, exact=job.exact)
        self.details: Details | None = None
        """Notes one step in detail, if an audit asks for it."""
        if job.detail is not None:
            names: dict[Tensor, str] = {p: name for name, p in self.model.module.named_parameters()}
            self.details = Details(job.out / "details.json", job.detail, lambda: names)
        self.buffers = BufferWatch(progress, exact=job.exact)
        """Notices buffers that the forward pass changes."""
        self.buffers.add(self.model.module)
        self.lone_shards = LoneShards(self.model.shards, progress)
        """Notices shards of one sample in batch norm."""
        if timeline is not None:
            timeline.watch_layers(self.model.module)
        self.noise: RunNoise | None = None
        """Measures the noise scale, if the job asks for it."""
        if job.noise:
            self.noise = RunNoise(
                self.update.optimizer,
                self.update.parameters,
                group.world.size,
                job.plan.accumulation,
                recipe.global_batch,
                exact=job.exact,
            )
        warmup = math.ceil(recipe.warmup * len(data.train) / recipe.global_batch)
        self.exchange = connect(job, group, self.model.module, timeline, self.noise, warmup)
        if group.alone and job.compression.changes_gradients:
            progress.warn(f"--wire {job.wire} has no effect on one replica: it sends nothing.")
        self.feed = Feed(job, group, data, self.watch)
        self.evaluation = Evaluation(self.feed.test_loader, self.feed.test_samples, recipe, group)
        self.shard_norms: ShardNorms | None = None
        """Lets the batch grow with the noise of the gradient, if the recipe allows it."""
        if (growth := self.feed.growth) is not None:
            self.shard_norms = ShardNorms(
                growth, recipe, group, self.model, self.feed, self.update, self.watch
            )

        self.spot_check: SpotCheck | None = None
        """Computes a shard on two replicas now and then, in exact mode."""
        if job.exact:
            self.spot_check = SpotCheck(job, group, self.model, self.feed, self.update, self.watch)

    def steps(self, start: int) -> Iterator[tuple[Step, list[Arrival]]]:
        """Return the steps from `start` on, with what arrived for their parts."""
        return self.feed.steps(start)

    def follow(self, step: Step, arrivals: list[Arrival]) -> None:
        """After a step, check it now and then, and let the batch follow what was measured."""
        if self.spot_check is not None:
            self.spot_check(step, arrivals)
        if self.shard_norms is not None:
            self.shard_norms.follow(step)

    def noise_scale(self) -> dict[str, Any] | None:
        """Return the noise scale so far, if it is measured; all replicas call this together."""
        source = self.noise or self.shard_norms
        return None if source is None else source.estimate()

    def evaluate(self) -> dict[str, float]:
        """Return loss and metrics on the test data."""
        self.model.merge_batch_norm()
        return self.evaluation(self.model.module)

    def is_finite(self) -> bool:
        """Tell whether all weights are numbers."""
        return self.model.is_finite()

    def digest(self) -> str:
        """Return a hash of all parameters: equal on replicas that agree."""
        return self.model.digest()

    def finish(self) -> dict[str, Any] | None:
        """Merge running statistics and end the data workers; return the timeline, if any."""
        self.model.merge_batch_norm()
        self.evaluation.close()
        return self.watch.result()

    def described(self) -> dict[str, Any]:
        """Return facts for run.json."""
        terms = self.exchange.terms
        return {
            "exchange": terms and terms.described(),
            "parameters": sum(p.numel() for p in self.model.module.parameters()),
            "train_samples": self.feed.samples,
            "test_samples": self.feed.test_samples,
        }

    def snapshot(self) -> Checkpoint:
        """Return the state after the last step; all replicas take part."""
        tensors, numbers = pack_optimizer(self.update.optimizer)
        tensors |= self.model.state()
        if (memory := self.exchange.memory) is not None:
            kept = memory.state(self.model.module)
            tensors |= {f"wire/{n}": t for n, t in kept.items()}
        facts: dict[str, Any] = {"optimizer": numbers}
        if self.shard_norms is not None:
            facts["growth"] = self.shard_norms.state()
        return Checkpoint(tensors, facts)

    def restore(self, checkpoint: Checkpoint) -> None:
        """Take over the state of a snapshot that was made on any number of replicas."""
        tensors, facts = checkpoint.tensors, checkpoint.facts
        self.model.load(tensors)
        unpack_optimizer(self.update.optimizer, tensors, facts["optimizer"])
        kept = {n.removeprefix("wire/"): t for n, t in tensors.items() if n.startswith("wire/")}
        if (memory := self.exchange.memory) is not None:
            memory.load(self.model.module, kept, int(facts["step"]))
        elif kept:
            self.progress.warn(
                "The checkpoint holds gradients that PowerSGD had not sent yet: they are dropped. "
                "To keep them, resume with --wire powersgd on two replicas or more."
            )
        if self.shard_norms is not None:
            self.shard_norms.load(facts["growth"])
