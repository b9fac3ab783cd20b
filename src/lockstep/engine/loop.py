"""The training loop. It fits on one page: what it does lives in plan, sampler, reduce, record."""

from __future__ import annotations

from typing import Any

from lockstep.console import Progress
from lockstep.engine.group import Group
from lockstep.engine.job import Job
from lockstep.engine.metrics import autocast, items_per_sample
from lockstep.engine.record import Record
from lockstep.engine.replica import Replica


def train(job: Job, group: Group, progress: Progress) -> dict[str, Any]:
    """Run `job` as one replica of `group`; the summary that run.json holds."""
    with Record(job, group, progress) as record:
        replica = Replica(job, group, progress)
        start = record.begin(replica)
        model, reduce, watch, recipe = replica.model, replica.reduce, replica.watch, job.recipe
        for step, batches in replica.steps(start):
            if replica.timeline:
                replica.timeline.begin()
            items = 0
            for number, part in enumerate(step.parts):
                inputs, targets = next(batches)
                replica.enter(step, part)
                with reduce.part(number, len(step.parts)):
                    with autocast(recipe, group.device):
                        outputs = model(inputs)
                        watch.mark("output")
                        losses = recipe.loss(outputs, targets)
                    # Divide by the global count, not by the replicas: the last batch may be uneven.
                    items = step.samples * items_per_sample(losses, len(inputs), "loss")
                    loss = losses.sum() * part.counts
                    watch.mark("loss")
                    reduce.weigh(loss, items).backward()
                if replica.timeline:
                    replica.timeline.backward_ends(
                        number + 1 == len(step.parts) and not group.alone
                    )
                record.meter.add(part.shards.start, loss, step.number)
            if step.number == start:
                replica.check_first_step()
            replica.clip()
            rate = replica.set_rate(step)
            watch.mark("optimizer step")
            replica.optimizer.step()
            watch.mark("weight update")
            replica.optimizer.zero_grad(set_to_none=True)
            record.after(step, items, rate)
            watch.mark("return control")
        return record.end()
