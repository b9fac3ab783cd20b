"""What a run leaves behind: metrics, checkpoints, the summary; and when it has to stop."""

from __future__ import annotations

import math
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from types import FrameType, TracebackType
from typing import Any, NamedTuple, Self

import torch

from lockstep.console import Progress
from lockstep.data.workers import loader_limits
from lockstep.engine.group import Group
from lockstep.engine.recipe.job import Job
from lockstep.engine.recipe.prepare import machine_facts
from lockstep.engine.replica import Replica
from lockstep.engine.run.checkpoint import Checkpoint, Checkpoints
from lockstep.engine.run.run_folder import RunFolder
from lockstep.engine.run.stopwatch import Stopwatch
from lockstep.engine.sampler import Step
from lockstep.engine.step.metrics import Meter, Totals
from lockstep.engine.step.timeline import BETWEEN
from lockstep.errors import CheckpointError, FolderError, Interrupted, NotFinite, RunError
from lockstep.scaling.batch.growth import Stride

LOGS_PER_EPOCH = 20
STEPS_BETWEEN_LOGS = 5
"""At least; a log makes the replicas wait for each other."""
CONTROL_SECONDS = 0.5
"""Time between two points where the replicas agree on going on."""


class Due(NamedTuple):
    """A step after which a log is due."""

    step: Step
    rate: float
    moment: float


class Record:
    """Follows a run. The first replica writes; all of them agree at control points."""

    def __init__(self, job: Job, group: Group, progress: Progress) -> None:
        self.job, self.group, self.progress = job, group, progress
        self.meter = Meter(job.plan, group)
        self.folder = RunFolder(job.out)
        self.checkpoints = Checkpoints(self.folder.checkpoints, job.keep)
        self.clock = Stopwatch()
        self.stop_asked = False
        self.told = False
        self.due: list[Due] = []
        self.done = self.shown = 0
        self.epochs = 0.0
        self.before_looking: Callable[[], None] = lambda: None
        """Called where the state is about to be read: steps may have been put off."""
        self.next_control = 0
        self.logged: tuple[float, int] = (0.0, 0)
        self.samples = 0
        self.warm: tuple[float, int] | None = None
        self.last: dict[str, float] = {}
        self.reached: float | None = None
        self.summary: dict[str, Any] = {}
        self.before: dict[str, Any] = {}
        self._handlers: dict[int, Callable[[int, FrameType | None], Any] | int | None] = {}

    def __enter__(self) -> Self:
        """Take the folder, and listen to Ctrl-C and SIGTERM."""
        if self.group.world.is_first:
            if self.job.resume:
                self.folder.lock()
            else:
                self.folder.claim()
        for number in (signal.SIGINT, signal.SIGTERM):
            self._handlers[number] = signal.signal(number, self._ask_to_stop)
        return self

    def _ask_to_stop(self, number: int, frame: FrameType | None) -> None:
        # Only noted: the replicas must stop after the same step, so they agree at a control point.
        self.stop_asked = True

    def begin(self, replica: Replica) -> int:
        """Start anew, or from the newest whole checkpoint; the number of steps already done."""
        self.replica = replica
        facts = machine_facts(self.job, self.group.device)
        start = self._restore(facts) if self.job.resume else 0
        growth, most = replica.growth, self.job.max_steps
        self.done, self.steps = start, growth.planned
        if most is not None:
            self.steps = most if growth.grows else min(self.steps, most)
        self._place(next(growth.strides(start - 1), None) if start else None)
        over = replica.is_over(start)
        if self.job.resume and over and self.before.get("status") == "finished":
            raise FolderError(
                f"{self.job.out} is finished: all {start} steps are done. "
                "For more, raise --epochs, or start a new run in another folder."
            )
        if start:
            self.progress.say(f"Resuming after step {start}.")
        self.summary |= {
            "status": "running",
            "began_at": time.time() - self.clock.total(),
            "recipe": self.job.recipe.described(),
            "exact": self.job.exact,
            "replicas": self.job.replicas,
            "shards_per_replica": self.job.plan.shards_per_replica,
            "micro_batch": self.job.plan.micro_batch,
            "accumulation": self.job.plan.accumulation,
            "exchange": replica.terms and replica.terms.described(),
            "machine": facts,
            "parameters": sum(p.numel() for p in replica.module.parameters()),
            "train_samples": replica.order.size,
            "test_samples": len(replica.data.test),
        }
        if self.group.world.is_first:
            self.folder.write_summary(self.summary)
        epochs = 0 if replica.growth.grows else self.job.recipe.epochs
        self.progress.begin(self.steps, self.shown, epochs)
        self.clock.turn_to("training")
        self.controlled = (time.perf_counter(), start)
        return start

    def _restore(self, facts: dict[str, Any]) -> int:
        before = self.before = self.folder.summary()
        differences = [
            f"{name} was {before['recipe'].get(name)!r}, now {value!r}"
            for name, value in self.job.recipe.described().items()
            if before["recipe"].get(name) != value and name != "epochs"
        ]
        if before.get("exact") != self.job.exact:
            differences.append(f"exact was {before.get('exact')}, now {self.job.exact}")
        if differences:
            raise FolderError(
                f"{self.job.out} holds a run of another recipe: {'; '.join(differences)}. "
                "Resume with the same recipe and flags, or name another folder."
            )
        if before["recipe"]["epochs"] != self.job.recipe.epochs:
            self.progress.warn(
                f"The run was planned for {before['recipe']['epochs']} epochs, now for "
                f"{self.job.recipe.epochs}: from here on it follows another learning-rate schedule "
                "than one undisturbed run would."
            )
        if not self.checkpoints.files():
            self.progress.warn(f"{self.job.out} has no checkpoint yet: starting from step 0.")
            self._forget_after(0)
            return 0
        checkpoint, warnings = self.checkpoints.newest()
        for text in warnings:
            self.progress.warn(text)
        then = checkpoint.facts["machine"]
        other = [f"{k} {then.get(k)} -> {v}" for k, v in facts.items() if then.get(k) != v]
        if self.job.exact and other:
            self.progress.warn(
                f"The checkpoint comes from another set-up ({', '.join(other)}): the last bits "
                "may differ from those of an undisturbed run."
            )
        self.replica.restore(checkpoint)
        first = self.group.world.rank * self.job.plan.shards_per_replica
        own = slice(first, first + self.job.plan.shards_per_replica)
        self.meter.sums[own] = checkpoint.tensors["meter"][own].tolist()
        self.meter.items = checkpoint.facts["items"]
        self.clock.seconds |= checkpoint.facts["seconds"]
        self.samples = checkpoint.facts["samples"]
        self.reached = checkpoint.facts["reached"]
        self.last = checkpoint.facts["last"]
        step = int(checkpoint.facts["step"])
        self.logged = (self.clock.seconds.get("training", 0.0), self.samples)
        self._forget_after(step)
        return step

    def _forget_after(self, step: int) -> None:
        # Every replica must have read the folder before the first one changes it.
        if len(set(self.group.objects(step))) > 1:
            raise CheckpointError(
                f"the replicas found different checkpoints in {self.job.out}: it must be one "
                "folder that all machines see."
            )
        if self.group.world.is_first:
            self.folder.checkpoints.mkdir(exist_ok=True)
            self.folder.forget_after(step)
            self.checkpoints.drop_after(step)

    def after(self, step: Step, items: int, rate: float) -> None:
        """Log, evaluate, save and stop where it is time to."""
        done, rounds = step.number + 1, step.stride.rounds
        self.done = done
        self.meter.after(step.number, items, len(step.parts))
        self.samples += step.samples
        per_epoch, every = self.replica.order.rounds_per_epoch, self.job.checkpoint_every
        interval = max(STEPS_BETWEEN_LOGS, per_epoch // LOGS_PER_EPOCH)
        ends_epoch = step.batch + rounds == per_epoch
        ends = step.stride.last
        logs = (step.batch + rounds) // interval > step.batch // interval or ends_epoch or ends
        saves = ends_epoch if every is None else every > 0 and done % every == 0
        saves = saves or (ends and every != 0)
        first = self.warm is None
        if logs:
            self.meter.close()
            self.clock.turn_to("training")
            self.due.append(Due(step, rate, self.clock.total()))
        # A curve of the noise scale has its points at the same steps whatever the machine's speed.
        noted = logs and self.replica.noise is not None
        if not (saves or ends_epoch or ends or first or noted or done >= self.next_control):
            return
        totals = self._agree(done, step)
        if first:
            self._first_step_done()
        self._log_training(totals)
        if ends_epoch or ends:
            self._evaluate(done, step)
        if saves or (totals.stop and not ends):
            self._save(done)
        if totals.stop and not ends:
            self.checkpoints.finish()
            saved = f"Continue with --resume --out {self.job.out}."
            raise Interrupted(f"Stopped after step {done}; its checkpoint is saved. {saved}")

    def _agree(self, done: int, step: Step) -> Totals:
        """A control point: the host waits for the device, the replicas for each other."""
        self.before_looking()
        moment = time.perf_counter()
        before, steps = self.controlled
        spent = (moment - before) / max(1, done - steps)
        most = max(1, 10_000 // self.replica.growth.most)
        interval = max(1, min(most, int(CONTROL_SECONDS / max(spent, 1e-9))))
        totals = self.meter.exchange(self.stop_asked, interval)
        self.controlled = (time.perf_counter(), done)
        self.next_control = done + totals.interval
        if totals.bad_step is not None:
            self._log_training(totals)
            self._not_finite(totals.bad_step + 1, "the loss")
        self._place(step.stride)
        self.progress.step(self.shown)
        self._look_at_loader()
        return totals

    def _look_at_loader(self) -> None:
        """Say once if the model waits for its data."""
        if self.told or self.warm is None:
            return
        loader, (seconds, samples) = self.replica.loader, self.warm
        self.clock.turn_to("training")
        text = loader_limits(
            loader.starved,
            self.clock.seconds["training"] - seconds,
            (self.samples - samples) / self.group.world.size,
            self.job.workers,
        )
        if text is not None:
            self.told = True
            self.progress.warn(text)

    def _not_finite(self, step: int, what: str) -> None:
        self.checkpoints.finish()
        files = self.checkpoints.files()
        kept = (
            f"The last good checkpoint is {files[-1]}." if files else "There is no checkpoint yet."
        )
        raise NotFinite(
            f"{what} became NaN or infinite at step {step}. {kept} "
            "Try a lower --learning-rate, a longer --warmup, or --clip 1.0."
        )

    def _first_step_done(self) -> None:
        """Throughput counts from here: the first step also sets things up."""
        self.clock.turn_to("training")
        self.summary["first_step_at"] = time.time()
        self.warm = (self.clock.seconds["training"], self.samples)

    def _log_training(self, totals: Totals) -> None:
        """Write the logs that have become due since the last control point."""
        if not self.due:
            return
        self.clock.turn_to("training")
        training = self.clock.seconds["training"]
        seconds, samples = training - self.logged[0], self.samples - self.logged[1]
        self.logged = (training, self.samples)
        noise = self._noise()
        for due, loss in zip(self.due, totals.losses, strict=True):
            if totals.bad_step is not None and due.step.number >= totals.bad_step:
                break
            self._write(
                kind="train",
                step=due.step.number + 1,
                epoch=self._epoch(due.step),
                seconds=due.moment,
                loss=loss,
                learning_rate=due.rate,
                samples_per_second=samples / seconds if seconds > 0 else None,
                **({"global_batch": due.step.samples} if self.replica.growth.grows else {}),
                # As of now, so the last of them.
                **(noise if due is self.due[-1] else {}),
            )
        self.due.clear()

    def _epoch(self, step: Step) -> float:
        """Passes over the data until the end of `step`."""
        return (step.stride.round + step.stride.rounds) / self.replica.order.rounds_per_epoch

    def _place(self, stride: Stride | None) -> None:
        """How far the run is, for those who watch it, after its last step so far."""
        order = self.replica.order
        self.shown, self.epochs = self.done, self.samples / order.size
        if stride is not None:
            self.epochs = (stride.round + stride.rounds) / order.rounds_per_epoch
            if self.replica.growth.grows and self.job.max_steps is None:
                # Gained steps: how many will be taken is not known yet.
                self.shown = self.steps if stride.last else int(stride.progress * self.steps)

    def _noise(self) -> dict[str, Any]:
        """The noise scale as metrics; all replicas ask together."""
        if (found := self.replica.noise_scale()) is None:
            return {}
        return {
            "noise_scale": found["value"],
            "noise_low": found["low"],
            "noise_high": found["high"],
        }

    def _evaluate(self, done: int, step: Step) -> None:
        self._aside("evaluation")
        self.last = self.replica.evaluate()
        self._back()
        if not math.isfinite(self.last["test_loss"]):
            self._not_finite(done, "the test loss")
        recipe = self.job.recipe
        if self.reached is None and recipe.reaches_target(self.last[recipe.metric]):
            self.reached = self.clock.total()
        epoch = self._epoch(step)
        self._write(kind="test", step=done, epoch=epoch, seconds=self.clock.total(), **self.last)

    def _write(self, **record: Any) -> None:
        if self.group.world.is_first:
            self.folder.log(**record)
        self.progress.record(record | {"step": self.shown})

    def _save(self, done: int) -> None:
        self._aside("checkpoints")
        if not self.replica.is_finite():
            self._not_finite(done, "a weight")
        snapshot = self.replica.snapshot()
        sums = self.group.sum(torch.tensor(self.meter.sums, dtype=torch.float64))
        if self.group.world.is_first:
            facts = {
                "step": done,
                "items": self.meter.items,
                "samples": self.samples,
                "seconds": dict(self.clock.seconds),
                "reached": self.reached,
                "last": self.last,
                "recipe": self.job.recipe.described(),
                "machine": machine_facts(self.job, self.group.device),
            }
            tensors = snapshot.tensors | {"meter": sums}
            self.checkpoints.save(Checkpoint(tensors, snapshot.facts | facts))
        self._back()

    def _aside(self, name: str) -> None:
        """Something that is no part of a step begins."""
        self.clock.turn_to(name)
        self.replica.watch.mark("return control")

    def _back(self) -> None:
        self.clock.turn_to("training")
        self.replica.watch.mark(BETWEEN)

    def end(self, **facts: Any) -> dict[str, Any]:
        """Write the weights and the summary, with `facts` in it."""
        self.clock.turn_to("the end")
        if not self.replica.is_finite():
            self._not_finite(self.done, "a weight")
        if len(set(self.group.objects(self.replica.digest()))) > 1:
            raise RunError(
                "The replicas ended with different weights: something in the recipe changes them "
                "besides the optimizer. The run's result cannot be trusted."
            )
        self.replica.merge_batch_norm()
        self.replica.evaluation.close()
        timelines = self.group.objects(
            self.replica.timeline.result() if self.replica.timeline else None
        )
        seconds = self.clock.seconds
        # No step was left to do if the run died between its last checkpoint and its weights.
        warm_seconds, warm_samples = self.warm or (seconds["training"], self.samples)
        training = seconds["training"] - warm_seconds
        self.summary |= {
            "status": "finished",
            "steps": self.done,
            "epochs": self.epochs,
            "seconds": self.clock.total(),
            "time": {name: round(value, 6) for name, value in seconds.items()},
            "samples_per_second": (self.samples - warm_samples) / training
            if training > 0
            else None,
            "metrics": self.last,
            "seconds_to_target": self.reached,
            "peak_memory_bytes": self.peak_memory(),
            "noise": self.replica.noise_scale(),
            **facts,
        }
        if self.group.world.is_first:
            self.summary["weights_sha256"] = self.folder.write_weights(self.replica.module)
            if self.job.timeline:
                self.summary["timeline"] = timelines
            self.checkpoints.finish()
            self.folder.write_summary(self.summary)
        # No replica returns before the first one has written everything.
        self.summary["weights_sha256"] = self.group.objects(self.summary.get("weights_sha256"))[0]
        return self.summary

    def peak_memory(self) -> int:
        """Bytes at most: allocated on the GPU, resident on the CPU."""
        if self.group.device.type == "cuda":
            most = torch.cuda.max_memory_allocated(self.group.device)
            return max(most, self.replica.path_peak)
        import resource

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Let the last checkpoint reach the disk, whatever happened."""
        for number, handler in self._handlers.items():
            # All is written: a request to stop that comes now has nothing left to stop.
            over = error is None and handler == signal.SIG_DFL
            signal.signal(number, signal.SIG_IGN if over else handler)
        self.progress.end()
        if error is None:
            self.checkpoints.finish()
        elif self.summary and self.group.world.is_first:
            # Whatever fails here would hide the error that is on its way.
            with suppress(RunError):
                self.checkpoints.finish()
            status = "interrupted" if isinstance(error, Interrupted) else "failed"
            with suppress(RunError):
                self.folder.write_summary(self.summary | {"status": status, "error": str(error)})
        if self.summary:
            # DDP must be gone before the group is: its destructor waits for the group's threads.
            del self.replica
