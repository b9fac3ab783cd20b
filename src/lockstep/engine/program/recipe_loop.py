"""Train a recipe with a `Loop`: batches of any structure, weighted losses, metrics of all kinds.

Recipes whose batches are two tensors have steps of their own, which can be recorded and compiled
(`engine/step`). In exact mode both ways compute the same bits for such a recipe.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

from lockstep.console import Progress
from lockstep.data import Data
from lockstep.data.nested import map_tensors
from lockstep.engine.feed import load_shared_data
from lockstep.engine.group import Group
from lockstep.engine.program.evaluate import joined
from lockstep.engine.program.given import Given, give
from lockstep.engine.program.loop import Loop
from lockstep.engine.recipe.job import Job, Speed
from lockstep.engine.recipe.prepare import check_model, seed_all
from lockstep.engine.recipe.recipe import Precision, Whole, build, is_whole
from lockstep.engine.step.metrics import chunk_size
from lockstep.engine.step.update import Update
from lockstep.errors import LockstepError, NotFinite, RecipeError, raised
from lockstep.keys import key
from lockstep.world import World


def train_by_loop(job: Job, world: World, store: str | None, progress: Progress) -> dict[str, Any]:
    """Run `job` as one replica; return the summary that run.json holds."""
    recipe = job.recipe
    described = recipe.described()
    give(
        Given(
            world=world,
            store=store,
            out=job.out,
            share_gpu=job.share_gpu,
            recipe=described,
            source=None if job.source is None else job.source.described(),
            detail=job.detail,
            progress=progress,
        )
    )
    try:
        with Loop(
            global_batch=recipe.global_batch,
            shards=recipe.shards,
            seed=recipe.seed,
            exact=job.exact,
            name=recipe.name,
            resume=job.resume,
            out=job.out,
            precision=recipe.precision,
            micro_batch=job.micro_batch,
            workers=job.workers,
            threads=job.threads,
            checkpoint_every=job.checkpoint_every,
            keep=job.keep,
            max_steps=job.max_steps,
            timeout=job.timeout,
            loggers=job.loggers,
            noise=job.noise,
            check_every=job.check_every,
            may_change=recipe.may_change,
            speed=Speed.EAGER if job.speed is Speed.AUTO else Speed(job.speed),
        ) as loop:
            parts = loop._parts
            data = load_shared_data(job, parts.group, parts.progress)
            for name, value in described.items():
                if isinstance(value, int | float | str) and name not in ("epochs", "name"):
                    parts.state.fact(name, value)
            parts.state.identities.update(recipe.identities())
            parts.state.fact("training samples", len(data.train))
            _Training(job, loop, data).run()
        return loop.summary
    finally:
        give(None)


class _Training:
    """The model, the optimizer and the data of a recipe, as a program would have them."""

    def __init__(self, job: Job, loop: Loop, data: Data) -> None:
        self.job, self.recipe, self.loop, self.data = job, job.recipe, loop, data
        recipe = self.recipe
        seed_all(key(recipe.seed, "weights"))
        module = build(f"the model of {recipe.name}", recipe.model)
        check_model(module)
        self.model = loop.model(module)
        self.update = Update(recipe, module, loop.device, job.exact)
        self.optimizer = loop.optimizer(self.update.optimizer, clip=recipe.clip)
        self.batches = loop.batches(data.train, collate=recipe.collate)
        self.planned = recipe.epochs * len(self.batches)
        self.whole = {n: m for n, m in recipe.metrics.items() if is_whole(m)}

    def run(self) -> None:
        """Train and evaluate, epoch after epoch."""
        loop, recipe = self.loop, self.recipe
        loop._parts.record.summary |= {
            "train_samples": len(self.data.train),
            "test_samples": len(self.data.test),
        }
        for _ in loop.epochs(recipe.epochs):
            for batch in self.batches:
                # The middle of the step, so that a warmup does not start with a rate of zero.
                progress = (loop.steps + 0.5) / self.planned
                self.update.set_rate(recipe.learning_rate * self.update.schedule(progress))
                loop.step(batch, self.loss, self.optimizer)
            self.evaluate()

    def loss(self, batch: Any) -> Any:
        """Return the recipe's loss of some samples, with its weights."""
        outputs, targets = self.outputs(batch)
        found = self.recipe.loss(outputs, targets)
        if isinstance(found, Tensor) and not found.dim():
            raise RecipeError(
                "the loss returned one number for several samples: lockstep cannot weigh it "
                "against those of other shards. Return one value per item (with torch's losses, "
                'reduction="none"), (values, weights), or (sum, count).'
            )
        return found

    def outputs(self, batch: Any) -> tuple[Any, Any]:
        """Return what the model makes of a batch, and the targets."""
        inputs, targets = _pair(batch)
        if self.data.prepare is not None:
            inputs = map_tensors(inputs, self.data.prepare)
        pure = self.recipe.precision is Precision.PURE_BF16
        if pure:
            inputs = map_tensors(inputs, lambda t: t.bfloat16() if t.is_floating_point() else t)
        outputs = _called(self.model, inputs)
        if pure:
            # Losses and metrics are sums over many items: bfloat16 would lose most of them.
            outputs = map_tensors(outputs, lambda t: t.float() if t.is_floating_point() else t)
        return outputs, targets

    def evaluate(self) -> None:
        """Measure the model on the test data, each sample once."""
        loop, recipe, record = self.loop, self.recipe, self.loop._parts.record
        record.clock.turn_to("evaluation")
        seen: list[Any] = []

        def measure(batch: Any) -> dict[str, Any]:
            outputs, targets = self.outputs(batch)
            if self.whole:
                seen.append(map_tensors((outputs, targets), lambda t: t.detach().cpu()))
            found = {"test_loss": recipe.loss(outputs, targets)}
            for name, metric in recipe.metrics.items():
                if name not in self.whole:
                    found[name] = metric(outputs, targets)
            return found

        size = chunk_size(recipe, len(self.data.test))
        found = loop._parts.evaluation(
            self.data.test, recipe.collate, size, self.job.workers
        ).means(measure)
        if self.whole:
            chunks = _in_order(seen, loop._parts.group)
            for name, metric in self.whole.items():
                found |= _over_all(name, metric, chunks)
        # The first metric decides; a recipe may name one over the whole set first.
        names = [n for n in found if n == "test_loss"] + _sorted(found, list(recipe.metrics))
        found = {name: found[name] for name in names}
        record.clock.turn_to("training")
        if not math.isfinite(found["test_loss"]):
            raise NotFinite(
                f"the test loss became NaN or infinite by step {loop.steps}. Try a lower "
                "--learning-rate, a longer --warmup, or --clip 1.0."
            )
        if recipe.metric not in found:
            raise RecipeError(
                f"{recipe.metric} gives several numbers, and runs are compared by the first "
                "metric. Name one first that gives a single number."
            )
        if record.reached is None and recipe.reaches_target(found[recipe.metric]):
            record.reached = record.clock.total()
        record.evaluated(found)
        loop.before_body()


def _pair(batch: Any) -> tuple[Any, Any]:
    if isinstance(batch, Mapping):
        return batch, batch
    if isinstance(batch, list | tuple) and len(batch) == 2:
        return batch[0], batch[1]
    raise RecipeError(
        f"a batch is {type(batch).__name__}. The collate function of a recipe must return "
        "(inputs, targets), or a dict that the model and the loss both get."
    )


def _called(model: nn.Module, inputs: Any) -> Any:
    """Call the model: with keywords for a dict, with several arguments for a tuple."""
    if isinstance(inputs, Mapping):
        return model(**inputs)
    if isinstance(inputs, tuple) and _takes(model, len(inputs)):
        return model(*inputs)
    return model(inputs)


@cache
def _takes(model: nn.Module, arguments: int) -> bool:
    """Return whether a model takes this number of arguments: a named tuple may be meant as one."""
    try:
        inspect.signature(model.forward).bind(*range(arguments))
    except TypeError:
        return False
    return True


def _in_order(seen: list[Any], group: Group) -> list[Any]:
    """Return the chunks of all replicas in the order of the data: each takes every N-th."""
    every = group.objects(seen, "evaluate")
    return [every[n % len(every)][n // len(every)] for n in range(sum(map(len, every)))]


def _over_all(name: str, metric: Any, chunks: list[Any]) -> dict[str, float]:
    """Return a metric over the whole test set, as one number or several with their places."""
    try:
        if isinstance(metric, Whole):
            found = metric(*joined(chunks))
        else:
            for part in metric.modules() if isinstance(metric, nn.Module) else ():
                # Every replica has all chunks: adding over the replicas would count them twice.
                if hasattr(part, "distributed_available_fn"):
                    setattr(part, "distributed_available_fn", _nobody)  # noqa: B010
            metric.reset()
            for outputs, targets in chunks:
                metric.update(outputs, targets)
            found = metric.compute()
    except LockstepError:
        raise
    except Exception as error:
        raise RecipeError(raised(f"the metric {name}", error)) from error
    return _numbers(name, found)


def _nobody() -> bool:
    """Tell an object of torchmetrics that there are no other replicas."""
    return False


def _numbers(name: str, found: Any) -> dict[str, float]:
    if isinstance(found, Mapping):
        return {k: v for n, item in found.items() for k, v in _numbers(f"{name}/{n}", item).items()}
    values = torch.as_tensor(found)
    if values.dim():
        rows = enumerate(values)
        return {k: v for n, row in rows for k, v in _numbers(f"{name}/{n}", row).items()}
    return {name: float(values)}


def _sorted(found: dict[str, float], order: list[str]) -> list[str]:
    """Return the names of the metrics in the order in which the recipe has them."""
    names = [n for n in found if n != "test_loss"]
    return sorted(names, key=lambda n: order.index(n if n in order else n.partition("/")[0]))
