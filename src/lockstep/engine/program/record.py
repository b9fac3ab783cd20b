"""Record the run of a program: the log, the checkpoints, the summary, and requests to stop."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

from lockstep.console import Progress
from lockstep.engine.group import Group
from lockstep.engine.program.goals import Goals
from lockstep.engine.program.log_line import LossSums, noise_of, rates_of
from lockstep.engine.program.notes import Notes
from lockstep.engine.program.receipts import Receipts
from lockstep.engine.program.state import ProgramState
from lockstep.engine.program.step import StepLoss
from lockstep.engine.run.checkpoint import Checkpoint, Checkpoints
from lockstep.engine.run.open_loggers import Chosen, Loggers
from lockstep.engine.run.peak_memory import peak_memory
from lockstep.engine.run.resume import forget_after, warn_of_another_machine
from lockstep.engine.run.run_folder import RunFolder, ended_by, refuse_untrusted, weights_sha256
from lockstep.engine.run.stop_request import StopRequest
from lockstep.engine.run.stopwatch import Stopwatch
from lockstep.errors import FolderError, Interrupted, NotFinite, RunError

SECONDS = 0.5
"""Time between two control points, where the replicas agree to continue or to stop."""
FIRST_STEPS = 50
"""Steps in which a loss may be compiled or recorded without counting as slow training."""
MOST_STEPS = 1000
"""The most steps between two control points."""


class ProgramRecord:
    """Follows the run of a program. The first replica writes; all agree at control points."""

    def __init__(
        self,
        group: Group,
        state: ProgramState,
        folder: Path,
        progress: Progress,
        facts: dict[str, Any],
        notes: Notes,
        *,
        keep: int,
        checkpoint_every: int | None,
        log_every: int,
        resume: bool,
        passed: bool = False,
        loggers: Chosen = (),
    ) -> None:
        """`passed` says that a later loop of the program has begun: this one may be finished."""
        self.group, self.state, self.progress = group, state, progress
        self.checkpoint_every, self.log_every = checkpoint_every, log_every
        self.resume, self.passed = resume, passed
        self.folder = RunFolder(folder)
        self.checkpoints = Checkpoints(self.folder.checkpoints, keep)
        self.receipts = Receipts(folder / "receipts.bin", group)
        self.goals = Goals(group, state, folder, self.checkpoints, progress)
        self.loggers = Loggers(loggers, folder, progress)
        self.folder.listeners.append(self.loggers)
        self.after_save: Callable[[], None] = lambda: None
        """Called on every replica after a checkpoint was made."""
        self.clock, self.stop = Stopwatch(), StopRequest()
        self.machine: dict[str, Any] = facts["machine"]
        self.summary: dict[str, Any] = {"status": "running", "began_at": time.time(), **facts}
        self.owned = False
        """Whether the folder is this run's: one to resume may turn out to hold another."""
        self.early: list[dict[str, Any]] = []
        """Lines from before that was known."""
        self.lines = 0  # of metrics.jsonl
        self.in_body = False  # whether a body has taken a step that is not counted yet
        self.trains = False
        """Whether the program has begun to train; one that only evaluates never does."""
        self.epoch = 0
        self.iterations, self.calls, self.samples = 0, 0, 0
        self.notes, self.losses = notes, LossSums(progress)
        self.metrics: dict[str, float] = {}
        self.reached: float | None = None  # seconds to the target of a recipe
        self.last_line: dict[str, float] = {}
        """What was logged last about training."""
        self.first: tuple[float, int] | None = None
        """Seconds of training and samples after the first step."""
        self.logged = (0.0, 0)
        self.cut_short = self.was_cut_short = False  # by `max_steps`, now and before a resume
        self.saved_epoch_end = False  # whether the last checkpoint came after an epoch's last batch
        self.next_control = 0
        self.last_control = (time.perf_counter(), 0)

    def claim(self) -> None:
        """Take the folder, and listen to Ctrl-C and SIGTERM."""
        if self.group.world.is_first:
            (self.folder.lock if self.resume else self.folder.claim)()
        if self.resume:
            refuse_untrusted(self.folder.path, before := self.folder.summary())
            self.was_cut_short = before.get("ended_by") == "max_steps"
            ended = before.get("status") == "finished" and not self.was_cut_short
            if ended and not self.passed:
                where = f"{self.folder.path} holds a run that is finished"
                raise FolderError(f"{where}. Start a new run in another folder.")
        if not self.resume:
            self._own()
        self.stop.listen()

    def _own(self) -> None:
        """Begin to write run.json and to the loggers."""
        self.owned = True
        if self.group.world.is_first:
            self.folder.write_summary(self.summary)
            self.loggers.begin(self.summary, self.iterations)

    def _take_over(self, step: int | None) -> None:
        """Begin to write into the folder of a run that is resumed after `step`; None: anew."""
        last = -1 if step is None else step
        forget_after(last, self.group, self.folder, self.checkpoints, self.lines)
        self.receipts.forget_after(self.calls)
        lines, self.early = self.early, []
        self._own()
        if step is None:
            for line in lines:
                self.write(line)
            if self.group.world.is_first:
                self.goals.start_anew()
        # Otherwise the run has logged these lines before it was stopped.

    def accept_or_refuse(self, accept: bool) -> None:
        """Warn of a program that has changed since the checkpoint, or refuse it."""
        if accept and self.state.changed:
            self.progress.warn(f"The program has changed: {'; '.join(self.state.changed)}.")
            self.state.changed.clear()
        self.state.refuse_changes(self.folder.path)

    def restore(self, *, accept_changes: bool) -> bool:
        """Continue from the newest whole checkpoint, if that was asked for and there is one."""
        found, self.trains = False, True
        if self.resume:
            if self.checkpoints.files():
                checkpoint, warnings = self.checkpoints.newest()
                for text in warnings:
                    self.progress.warn(text)
                facts, found = checkpoint.facts, True
                if self.summary["exact"]:
                    warn_of_another_machine(facts["machine"], self.machine, self.progress)
                if facts["machine"].get("python") != self.machine["python"]:
                    # Another Python compiles the same source to other code.
                    checkpoint.facts["identities"] = {}
                self.state.compare(facts)
                self.accept_or_refuse(accept_changes)
                self.state.restore(checkpoint)
                self._load(checkpoint)
                self.progress.say(f"Resuming after step {self.iterations}.")
            else:
                self.progress.warn(f"{self.folder.path} has no checkpoint yet: starting anew.")
            self._take_over(self.iterations if found else None)
        self.clock.turn_to("training")
        return found

    def _load(self, checkpoint: Checkpoint) -> None:
        facts = checkpoint.facts
        self.epoch, self.iterations, self.calls = (facts[n] for n in ("epoch", "step", "calls"))
        self.samples, self.metrics = facts["samples"], facts["metrics"]
        self.lines, self.reached = facts["lines"], facts.get("reached")
        self.last_line = facts["last_line"]
        self._name_metrics(self.metrics)
        self.goals.load(facts.get("goals", {}))
        self.summary |= self.goals.described()
        self.losses.load(facts["sums"])
        self.notes.load(facts["notes"])
        self.clock.seconds |= facts["seconds"]

    def step(self, name: str, loss: StepLoss) -> None:
        """Note one step of the optimizer `name`."""
        self.losses.add(name, loss.table)
        self.calls += 1

    def after_body(self, *, samples: int, ends_epoch: bool, over: bool) -> None:
        """After the body of an iteration: log, save and stop when it is time to."""
        self.iterations += 1
        self.samples += samples
        done = self.iterations
        if self.first is None:
            self._begin_measuring()
        logs = ends_epoch or over or done % self.log_every == 0
        every = self.checkpoint_every
        saves = ends_epoch if every is None else every > 0 and done % every == 0
        saves |= over and every != 0
        if logs or saves or done >= self.next_control:
            stops = self._agree()
            if logs:
                self._log()
            if saves or stops:
                self.save()
                self.saved_epoch_end = ends_epoch
            if stops:
                self.checkpoints.finish()
                way_on = f"Continue with resume, in {self.folder.path}."
                raise Interrupted(f"Stopped after step {done}; its checkpoint is saved. {way_on}")

    def after_epoch(self) -> None:
        """Save again after all code of an epoch, so that a resumed run begins the next one."""
        self.epoch += 1
        self.goals.warn_of_other_names(self.metrics)
        if self.saved_epoch_end:
            self.saved_epoch_end = False
            self.save()

    def _begin_measuring(self) -> None:
        self.clock.turn_to("training")
        self.first = (self.clock.seconds["training"], self.samples)
        self.summary.setdefault("first_step_at", time.time())

    def measure_again(self) -> None:
        """Count samples per second from the next step on: this one compiled or recorded a loss."""
        if self.iterations < FIRST_STEPS:
            self.first = None

    def _agree(self) -> bool:
        """Agree with the other replicas; return whether to stop."""
        if (bad := self.losses.not_finite()) is not None:
            # All replicas have the same table, so all of them raise.
            raise NotFinite(
                f"the loss of {bad} became NaN or infinite at step {self.iterations} or up to "
                f"{self.log_every} steps before. Try a lower learning rate, or clip=1.0."
            )
        before, steps = self.last_control
        spent = (time.perf_counter() - before) / max(1, self.iterations - steps)
        wish = max(1, min(MOST_STEPS, int(SECONDS / max(spent, 1e-9))))
        own = [float(self.stop.asked), float(wish) if self.group.world.is_first else 0.0]
        stop, interval = self.group.sum(torch.tensor(own, dtype=torch.float64)).tolist()
        self.last_control = (time.perf_counter(), self.iterations)
        self.next_control = self.iterations + int(interval)
        self.receipts.settle()
        self.progress.step(self.iterations)
        return bool(stop)

    def _log(self) -> None:
        self.clock.turn_to("training")
        training = self.clock.seconds["training"]
        seconds, samples = training - self.logged[0], self.samples - self.logged[1]
        self.logged = (training, self.samples)
        line: dict[str, Any] = {
            "kind": "train",
            "step": self.iterations,
            "epoch": self.epochs(),
            "seconds": self.clock.total(),
        }
        line |= self.losses.means(several=len(self.state.steppers) > 1)
        line |= self.notes.means(self.group) | rates_of(self.state.steppers)
        self.last_line = {n: v for n, v in line.items() if n not in ("kind", "seconds")}
        line["samples_per_second"] = samples / seconds if seconds > 0 else None
        self.write(line)

    def epochs(self) -> float:
        """Return the passes over the data so far."""
        first = self.state.batches[0] if self.state.batches else None
        if first is None or first.begun_in != self.epoch:
            return float(self.epoch)
        try:
            return self.epoch + min(1.0, first.next / len(first))
        except TypeError:
            return float(self.epoch)

    def write(self, line: dict[str, Any]) -> None:
        """Append a line to metrics.jsonl, and show it."""
        if not self.owned:
            self.early.append(line)
        else:
            self.lines += 1
            if self.group.world.is_first:
                self.folder.log(**line)
        if self.trains and (line["kind"] == "test" or "loss" in line):
            self.progress.record(line)

    def save(self) -> None:
        """Write a checkpoint; all replicas take part."""
        self.clock.turn_to("checkpoints")
        self.state.refuse_drift(self.iterations)
        for name, model in self.state.models.items():
            if not model.is_finite():
                raise NotFinite(
                    f"a weight of {name} became NaN or infinite by step {self.iterations}. Try a "
                    "lower learning rate, or clip=1.0."
                )
        tensors, facts = self.state.snapshot()
        notes = self.notes.rows(self.group)
        if self.group.world.is_first:
            facts |= {
                "step": self.iterations,
                "calls": self.calls,
                "epoch": self.epoch,
                "samples": self.samples,
                "lines": self.lines,
                "seconds": dict(self.clock.seconds),
                "metrics": self.metrics,
                "reached": self.reached,
                "last_line": self.last_line,
                "machine": self.machine,
                "goals": self.goals.state_dict(),
                "sums": self.losses.read(),
                "notes": notes,
            }
            self.checkpoints.save(Checkpoint(tensors, facts))
        self.clock.turn_to("training")
        self.after_save()

    def evaluated(self, found: dict[str, float]) -> None:
        """Note the result of an evaluation."""
        self.metrics |= found
        self._name_metrics(found)
        step = self.iterations + self.in_body
        place = {"kind": "test", "step": step, "epoch": self.epochs()}
        self.write(place | {"seconds": self.clock.total()} | found)
        better = self.goals.see(found, step)
        if better and self.owned and self.group.world.is_first:
            self.goals.write()
            self.summary |= self.goals.described()
            self.folder.write_summary(self.summary)

    def _name_metrics(self, found: dict[str, float]) -> None:
        """Add what a program measures to its description; a recipe has named its metrics."""
        if "program" in self.summary:
            for name in found:
                self.summary["recipe"]["metrics"].setdefault(name, name)

    def end(self) -> dict[str, Any]:
        """Write weights and summary; return the summary."""
        self.clock.turn_to("the end")
        if not self.owned and self.checkpoints.files():
            raise FolderError(
                f"{self.folder.path} holds a run that trains, and this program only evaluates. "
                "Give it another folder, and load that run: loop.load(...)."
            )
        if not self.owned:
            self._take_over(None)
        self.receipts.settle()
        self.state.refuse_drift(self.iterations)
        for model in self.state.models.values():
            model.merge_batch_norm()
        trained = self.clock.seconds.get("training", 0.0)
        speed = None
        if self.first is not None and trained > self.first[0]:
            speed = (self.samples - self.first[1]) / (trained - self.first[0])
        self.summary |= {
            "status": "finished",
            "steps": self.iterations,
            "epochs": self.epochs(),
            "seconds": self.clock.total(),
            "time": {name: round(value, 6) for name, value in self.clock.seconds.items()},
            "samples_per_second": speed,
            "metrics": self.metrics,
            "seconds_to_target": self.reached,
            "peak_memory_bytes": peak_memory(self.group.device),
            "noise": noise_of(self.state.steppers),
            "parameters": sum(
                p.numel() for m in self.state.models.values() for p in m.module.parameters()
            ),
            **self.goals.described(),
        }
        if self.cut_short:
            self.summary["ended_by"] = "max_steps"
        if self.group.world.is_first:
            module = self.state.module()
            self.summary["weights_sha256"] = (
                self.folder.write_weights(module) if self.trains else weights_sha256(module)
            )
            self.checkpoints.finish()
            self.folder.write_summary(self.summary)
        self.summary["weights_sha256"] = self.group.objects(self.summary.get("weights_sha256"))[0]
        return self.summary

    def leave(self, error: BaseException | None) -> None:
        """Wait until the last checkpoint is on disk, and note how the run ended."""
        self.stop.ignore(finished=error is None)
        self.progress.end()
        ended = ended_by(error)
        self.loggers.close("finished" if error is None else ended["status"])
        if error is None:
            self.checkpoints.finish()
        elif self.group.world.is_first and self.owned:
            with suppress(RunError):
                self.checkpoints.finish()
            with suppress(RunError):
                self.folder.write_summary(self.summary | ended)
