"""Record a run: write metrics, checkpoints and the summary, and stop when that is asked for."""

from __future__ import annotations

import math
import time
from contextlib import suppress
from types import TracebackType
from typing import Any, NoReturn, Self

from lockstep.console import Progress
from lockstep.engine.group import Group
from lockstep.engine.recipe.job import Job
from lockstep.engine.recipe.prepare import machine_facts
from lockstep.engine.replica import Replica
from lockstep.engine.run.checkpoint import Checkpoint, Checkpoints
from lockstep.engine.run.control import Control
from lockstep.engine.run.open_loggers import Loggers
from lockstep.engine.run.peak_memory import peak_memory
from lockstep.engine.run.position import Position
from lockstep.engine.run.receipts import ReceiptFile
from lockstep.engine.run.resume import (
    find_checkpoint,
    forget_after,
    refuse_other_code,
    warn_of_another_machine,
)
from lockstep.engine.run.run_folder import RunFolder, ended_by, refuse_untrusted
from lockstep.engine.run.stop_request import StopRequest
from lockstep.engine.run.stopwatch import Stopwatch
from lockstep.engine.run.throughput import Throughput
from lockstep.engine.run.training_log import TrainingLog
from lockstep.engine.sampler import Step
from lockstep.engine.step.metrics import UNEVEN, Meter, Totals
from lockstep.engine.step.paths import StepPaths
from lockstep.engine.step.timeline import BETWEEN
from lockstep.engine.step.training_step import Taken
from lockstep.errors import FolderError, Interrupted, NotFinite, RecipeError, RunError


class Record:
    """Follows a run. The first replica writes; all replicas agree at control points."""

    def __init__(self, job: Job, group: Group, progress: Progress) -> None:
        self.job, self.group, self.progress = job, group, progress
        self.meter = Meter(job.plan, group)
        self.folder = RunFolder(job.out)
        self.checkpoints = Checkpoints(self.folder.checkpoints, job.keep)
        self.receipts = ReceiptFile(job.out / "receipts.bin", group)
        self.loggers = Loggers(job.loggers, job.out, progress)
        self.folder.listeners.append(self.loggers)
        self.clock = Stopwatch()
        self.stop = StopRequest()
        self.machine = machine_facts(job.threads, group.device)
        self.metrics: dict[str, float] = {}
        """The last test loss and metrics."""
        self.reached: float | None = None
        """Seconds until the target was reached."""
        self.summary: dict[str, Any] = {}
        self.owes_evaluation = False
        """Whether the run stopped between a checkpoint and the evaluation that follows it."""

    def __enter__(self) -> Self:
        """Take the folder, and listen to Ctrl-C and SIGTERM."""
        if self.group.world.is_first:
            if self.job.resume:
                self.folder.lock()
            else:
                self.folder.claim()
        self.stop.listen()
        return self

    def begin(self, replica: Replica, paths: StepPaths) -> int:
        """Start from step 0 or from the newest checkpoint; return the number of steps done."""
        self.replica, self.paths, self.watch, feed = replica, paths, replica.watch, replica.feed
        before = self.folder.summary() if self.job.resume else {}
        refuse_untrusted(self.job.out, before)
        start, samples = self._restore(before) if self.job.resume else (0, 0)
        self.position = Position(feed, self.job.max_steps, start, samples)
        self.log = TrainingLog(self.clock, self.position, feed.rounds_per_epoch)
        self.throughput = Throughput(self.clock, self.position, feed)
        if self.job.resume and feed.is_over(start) and before.get("status") == "finished":
            raise FolderError(
                f"{self.job.out} is finished: all {start} steps are done. "
                "For more, raise --epochs, or start a new run in another folder."
            )
        if start:
            self.progress.say(f"Resuming after step {start}.")
        plan = self.job.plan
        self.summary |= {
            "status": "running",
            "began_at": time.time() - self.clock.total(),
            "recipe": self.job.recipe.described(),
            "exact": self.job.exact,
            "replicas": self.job.replicas,
            "shards_per_replica": plan.shards_per_replica,
            "micro_batch": plan.micro_batch,
            "accumulation": plan.accumulation,
            "machine": self.machine,
            "source": None if (named := self.job.source) is None else named.described(),
            **replica.described(),
        }
        if self.group.world.is_first:
            self.folder.write_summary(self.summary)
            self.loggers.begin(self.summary, start)
        epochs = 0 if self.position.grows else self.job.recipe.epochs
        self.progress.begin(self.position.steps, self.position.shown, epochs)
        self.clock.turn_to("training")
        self.control = Control(start, feed.most_rounds)
        if self.owes_evaluation:
            self._catch_up(start)
        return start

    def _catch_up(self, step: int) -> None:
        """Evaluate after a resume, unless the run had done so before it stopped."""
        lines = [r for r in self.folder.metrics() if r.get("kind") == "test"]
        found = next((line for line in lines if line.get("step") == step), None)
        if any(value is None for value in self.group.objects(found)):
            self._evaluate(self.position.epochs)
            return
        assert found is not None
        place = ("kind", "step", "epoch", "seconds")
        self.metrics = {name: value for name, value in found.items() if name not in place}
        recipe = self.job.recipe
        if self.reached is None and recipe.reaches_target(self.metrics[recipe.metric]):
            self.reached = found["seconds"]

    def _restore(self, before: dict[str, Any]) -> tuple[int, int]:
        """Continue from the newest whole checkpoint; return its steps and samples."""
        checkpoint = find_checkpoint(self.job, before, self.checkpoints, self.progress)
        step, samples = 0, 0
        if checkpoint is not None:
            tensors, facts = checkpoint
            samples_now, python = self.replica.feed.samples, self.machine["python"]
            refuse_other_code(self.job, facts, samples_now, python)
            if self.job.exact:
                warn_of_another_machine(facts["machine"], self.machine, self.progress)
            self.replica.restore(checkpoint)
            self.meter.load(tensors["meter"], facts["items"])
            self.clock.seconds |= facts["seconds"]
            self.reached, self.metrics = facts["reached"], facts["last"]
            step, samples = int(facts["step"]), facts["samples"]
            self.owes_evaluation = bool(facts.get("evaluates"))
        forget_after(step, self.group, self.folder, self.checkpoints)
        self.receipts.forget_after(step)
        return step, samples

    def after(self, step: Step, taken: Taken) -> None:
        """Log, evaluate, save and stop when it is time to."""
        ends_epoch = self.position.take(step)
        self.meter.after(step.number, taken.items, len(step.parts))
        done, every, ends = self.position.done, self.job.checkpoint_every, step.stride.last
        logs = ends_epoch or ends or self.log.is_due(step)
        saves = ends_epoch if every is None else every > 0 and done % every == 0
        saves = saves or (ends and every != 0)
        if logs:
            self.meter.close()
            self.log.note(step, taken.rate)
        first = not self.throughput.begun
        # A curve of the noise scale has its points at the same steps whatever the machine's speed.
        noted = logs and self.replica.noise is not None
        if saves or ends_epoch or ends or first or noted or done >= self.control.next:
            totals = self._agree(step)
            if first:
                self.throughput.begin()
                self.summary["first_step_at"] = time.time()
            self._log_training(totals)
            stops = totals.stop and not ends
            if saves or stops:
                # Before the evaluation, which may fail or run out of memory.
                self._save(evaluates=ends_epoch or ends)
            if ends_epoch or ends:
                self._evaluate(self.position.epochs_after(step))
            if stops:
                self.checkpoints.finish()
                saved = f"Continue with --resume --out {self.job.out}."
                raise Interrupted(f"Stopped after step {done}; its checkpoint is saved. {saved}")
        self.watch.mark("return control")

    def _agree(self, step: Step) -> Totals:
        """Take steps that were put off, then agree with the other replicas."""
        self.paths.flush()
        totals = self.control.agree(self.meter, self.position.done, self.stop.asked)
        self.receipts.settle(self.meter.receipts)
        self.meter.receipts.clear()
        if totals.uneven:
            raise RecipeError(UNEVEN)
        if totals.bad_step is not None:
            self._log_training(totals)
            self._refuse_not_finite(totals.bad_step + 1, "the loss")
        self.position.update(step.stride)
        self.progress.step(self.position.shown)
        advice = self.throughput.loader_advice(self.group.world.size, self.job.workers)
        if advice is not None:
            self.progress.warn(advice)
        return totals

    def _refuse_not_finite(self, step: int, what: str) -> NoReturn:
        self.checkpoints.finish()
        files = self.checkpoints.files()
        kept = (
            f"The last good checkpoint is {files[-1]}." if files else "There is no checkpoint yet."
        )
        raise NotFinite(
            f"{what} became NaN or infinite at step {step}. {kept} "
            "Try a lower --learning-rate, a longer --warmup, or --clip 1.0."
        )

    def _log_training(self, totals: Totals) -> None:
        """Write the logs that have become due since the last control point."""
        if self.log.due:
            for line in self.log.lines(totals, self._noise()):
                self._write(line)

    def _noise(self) -> dict[str, Any]:
        """Return the noise scale as metrics; all replicas call this together."""
        if (found := self.replica.noise_scale()) is None:
            return {}
        return {
            "noise_scale": found["value"],
            "noise_low": found["low"],
            "noise_high": found["high"],
        }

    def _evaluate(self, epoch: float) -> None:
        self._pause_training("evaluation")
        self.metrics = self.replica.evaluate()
        self._resume_training()
        if not math.isfinite(self.metrics["test_loss"]):
            self.checkpoints.finish()
            if self.group.world.is_first:
                self.checkpoints.drop_after(self.position.done - 1)
            self._refuse_not_finite(self.position.done, "the test loss")
        recipe, seconds = self.job.recipe, self.clock.total()
        if self.reached is None and recipe.reaches_target(self.metrics[recipe.metric]):
            self.reached = seconds
        place = {"kind": "test", "step": self.position.done, "epoch": epoch, "seconds": seconds}
        self._write(place | self.metrics)

    def _write(self, line: dict[str, Any]) -> None:
        if self.group.world.is_first:
            self.folder.log(**line)
        self.progress.record(line | {"step": self.position.shown})

    def _save(self, *, evaluates: bool) -> None:
        self._pause_training("checkpoints")
        if not self.replica.is_finite():
            self._refuse_not_finite(self.position.done, "a weight")
        self.replica.model.refuse_drift(self.position.done)
        snapshot = self.replica.snapshot()
        sums, items = self.meter.state()
        if self.group.world.is_first:
            facts = {
                "step": self.position.done,
                "items": items,
                "samples": self.position.samples,
                "seconds": dict(self.clock.seconds),
                "reached": self.reached,
                "last": self.metrics,
                "evaluates": evaluates,
                "identities": self.job.recipe.identities(),
                "train_samples": self.replica.feed.samples,
                "recipe": self.job.recipe.described(),
                "machine": self.machine,
            }
            tensors = snapshot.tensors | {"meter": sums}
            self.checkpoints.save(Checkpoint(tensors, snapshot.facts | facts))
        self._resume_training()

    def _pause_training(self, name: str) -> None:
        """Count the time from here on as `name`, not as a part of a step."""
        self.clock.turn_to(name)
        self.watch.mark("return control")

    def _resume_training(self) -> None:
        self.clock.turn_to("training")
        self.watch.mark(BETWEEN)

    def end(self) -> dict[str, Any]:
        """Write the weights and the summary; return the summary."""
        self.clock.turn_to("the end")
        position = self.position
        if not self.replica.is_finite():
            self._refuse_not_finite(position.done, "a weight")
        self.replica.model.refuse_drift(position.done)
        timelines = self.group.objects(self.replica.finish())
        self.summary |= {
            "status": "finished",
            "steps": position.done,
            "epochs": position.epochs,
            "seconds": self.clock.total(),
            "time": {name: round(value, 6) for name, value in self.clock.seconds.items()},
            "samples_per_second": self.throughput.per_second(),
            "metrics": self.metrics,
            "seconds_to_target": self.reached,
            "peak_memory_bytes": self.peak_memory(),
            "noise": self.replica.noise_scale(),
            "speed": self.paths.summary(),
        }
        if self.group.world.is_first:
            self.summary["weights_sha256"] = self.folder.write_weights(self.replica.model.module)
            if self.job.timeline:
                self.summary["timeline"] = timelines
            self.checkpoints.finish()
            self.folder.write_summary(self.summary)
        # No replica returns before the first one has written everything.
        self.summary["weights_sha256"] = self.group.objects(self.summary.get("weights_sha256"))[0]
        return self.summary

    def peak_memory(self) -> int:
        """Return the most bytes used at once: allocated on the GPU, resident on the CPU."""
        return max(peak_memory(self.group.device), self.paths.peak_bytes)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Wait until the last checkpoint is on disk, even after an error."""
        self.stop.ignore(finished=error is None)
        self.progress.end()
        ended = ended_by(error)
        self.loggers.close("finished" if error is None else ended["status"])
        if error is None:
            self.checkpoints.finish()
        elif self.summary and self.group.world.is_first:
            # An error here would hide the one that is being raised.
            with suppress(RunError):
                self.checkpoints.finish()
            with suppress(RunError):
                self.folder.write_summary(self.summary | ended)
        if self.summary:
            # DDP must be gone before the group is: its destructor waits for the group's threads.
            del self.replica, self.paths
