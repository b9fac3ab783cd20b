"""Search for the fastest way to execute a step: as it is written, compiled, or as a CUDA graph.

A CUDA graph holds the whole step: indexing the data, forward, backward, exchange, update. The
search trains meanwhile: every step it takes counts.
"""

from __future__ import annotations

import math
import time
from collections.abc import Generator
from statistics import median
from typing import Any, NamedTuple, cast

import torch

from lockstep.console import Progress
from lockstep.data import Arrival
from lockstep.engine.group import Group
from lockstep.engine.recipe.job import Job, Speed
from lockstep.engine.replica import Replica
from lockstep.engine.sampler import Step
from lockstep.engine.step.cuda_graph import BLOCK, Blocks
from lockstep.engine.step.metrics import Meter
from lockstep.engine.step.path_attempts import Attempts, StepPath, Ticket
from lockstep.engine.step.training_step import Taken, TrainingStep

Search = Generator[Taken, Ticket, None]
"""Receives a step, takes it, and yields what it left to be recorded."""

FEW_STEPS = 30
"""A run of fewer steps is over before a search could pay."""
TIMED_STEPS = 8
TIMED_SECONDS, MOST_TIMED = 0.3, 200
"""How long short steps are timed, and the most steps that are timed."""
TURNS, TURN_SECONDS = 3, 0.2
"""How often, and how long, the last two paths are timed."""
WORTHWHILE = 0.97
"""The share of the time that another path may take to be chosen: a smaller gain is chance."""
COMPILE_PAYS = {"cuda": 120.0, "cpu": 900.0}
"""Seconds of training that must be left. Compiling takes up to a minute, and may save a third."""


class Pick(NamedTuple):
    """The path of a run, for run.json."""

    asked: str
    name: str
    why: str
    milliseconds: dict[str, float]


class PathSearch:
    """Takes steps of one size on the path that the job asks for, or on the fastest."""

    def __init__(
        self,
        job: Job,
        group: Group,
        replica: Replica,
        meter: Meter,
        progress: Progress,
        eager: TrainingStep,
    ) -> None:
        self.job, self.group, self.feed, self.progress = job, group, replica.feed, progress
        self.attempts = Attempts(job, group, replica, meter, eager)
        self.gpu = group.device.type == "cuda"
        self.eager = eager
        self.path: StepPath = eager
        self.pick = Pick(job.speed, "eager", "", {})
        self.milliseconds: dict[str, float] = {}
        self.peaks: dict[str, int] = {}
        self.peak_bytes = 0
        """Bytes that a step takes on the chosen path, if the allocator does not count them."""
        self.settled = False
        self.search: Search | None = self._search()
        next(self.search)

    def __call__(self, step: Step, arrivals: list[Arrival]) -> Taken:
        """Take one step."""
        if self.search is None:
            return self.path(step, arrivals)
        taken = self.search.send((step, arrivals))
        if self.settled:
            # Drop the search, which holds on to the paths that were not chosen.
            self.search = None
        return taken

    def flush(self) -> None:
        """Take the steps that were put off. Call this before reading the state."""
        if isinstance(self.path, Blocks):
            self.path.flush()

    def _search(self) -> Search:
        """Find the path while taking the steps that are sent."""
        ticket = yield Taken(0, 0.0)
        strategy = {
            Speed.AUTO: self._auto,
            Speed.EAGER: self._as_written,
            Speed.COMPILE: self._compiled,
            Speed.GRAPH: self._recorded,
        }[Speed(self.job.speed)]
        yield from strategy(ticket)

    def _settle(self, name: str, path: StepPath, why: str) -> None:
        self.path, self.settled = path, True
        if isinstance(path, Blocks):
            why = f"{why}; {BLOCK} steps in one launch".removeprefix("; ")
        self.pick = Pick(self.job.speed, name, why, self.milliseconds)
        if self.job.speed is not Speed.EAGER and not (name == "eager" and not self.gpu and not why):
            self.progress.say(f"Speed: {name}{': ' + why if why else ''}.")
        if self.gpu:
            # Peak memory is that of the path, not of the search. The allocator counts what a
            # graph uses as free: remember what its steps took before they were recorded.
            self.peak_bytes = self.peaks.get(name, 0)
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats(self.group.device)

    def _as_written(self, ticket: Ticket) -> Search:
        self._settle("eager", self.eager, "")
        yield self.eager(*ticket)

    def _recorded(self, ticket: Ticket) -> Search:
        reason = self.attempts.no_graph()
        if reason is None:
            ticket, _ = yield from self._time(self.eager, ticket, self._warmup(), "graph")
            graph, reason = self.attempts.record(self.eager, ticket)
            if graph is not None:
                ticket, spent = yield from self._time(graph, ticket, TIMED_STEPS)
                path = self.attempts.in_blocks(graph, ticket, spent)
                self._settle("graph", path, "")
                yield path(*ticket)
                return
        self._settle("eager", self.eager, f"no CUDA graph, because {reason}")
        yield self.eager(*ticket)

    def _compiled(self, ticket: Ticket) -> Search:
        reason = self.attempts.no_compile()
        if reason is None:
            compiled, taken, reason = self.attempts.compile(ticket)
            if compiled is not None and taken is not None:
                ticket = yield taken
                yield from self._settle_compiled(compiled, ticket)
                return
        self._settle("eager", self.eager, f"not compiled, because {reason}")
        yield self.eager(*ticket)

    def _settle_compiled(self, compiled: TrainingStep, ticket: Ticket) -> Search:
        """Choose the compiled step, and record it as well if that is possible."""
        reason = self.attempts.no_graph()
        if reason is None:
            ticket, _ = yield from self._time(compiled, ticket, self._warmup(), "compile")
            graph, reason = self.attempts.record(compiled, ticket)
            if graph is not None:
                ticket, spent = yield from self._time(graph, ticket, TIMED_STEPS)
                path = self.attempts.in_blocks(graph, ticket, spent)
                self._settle("compile", path, "and replayed as a CUDA graph")
                yield path(*ticket)
                return
        self._settle("compile", compiled, f"no CUDA graph, because {reason}" if self.gpu else "")
        yield compiled(*ticket)

    def _auto(self, ticket: Ticket) -> Search:
        """Time eager steps, then a graph, then, if the run is long, compiled kernels."""
        left = self.feed.steps_left(ticket[0])
        if left < FEW_STEPS or self.job.timeline:
            short = f"{left} steps are too few to search for more"
            why = "the timeline looks into the step" if self.job.timeline else short
            yield from self._keep(ticket, why)
            return
        # The first step sets things up.
        ticket = yield self.eager(*ticket)
        ticket, _ = yield from self._time(self.eager, ticket, self._warmup(), "graph")
        ticket, best = yield from self._time(self.eager, ticket, TIMED_STEPS)
        timed = int(min(max(TIMED_STEPS, TIMED_SECONDS / best), MOST_TIMED, max(left // 20, 8)))
        if timed > TIMED_STEPS:
            ticket, best = yield from self._time(self.eager, ticket, timed)
        self.milliseconds["eager"] = 1e3 * best
        name, path = "eager", cast(StepPath, self.eager)
        notes: list[str] = []
        reason = self.attempts.no_graph()
        if reason is None:
            graph, reason = self.attempts.record(self.eager, ticket)
            if graph is not None:
                reason = self.attempts.differs(graph, ticket)
            if graph is not None and reason is None:
                ticket, spent, quick = yield from self._best(graph, ticket, timed)
                self.milliseconds["graph"] = 1e3 * spent
                if spent < WORTHWHILE * best:
                    name, path, best = "graph", quick, spent
        if reason is not None and self.gpu:
            notes.append(f"no CUDA graph, because {reason}")
        pays = COMPILE_PAYS[self.group.device.type]
        ahead = best * self.feed.steps_left(ticket[0])
        if ahead < pays:
            notes.append(f"compiling would not pay in {ahead:.0f} s")
        elif (reason := self.attempts.no_compile()) is not None:
            notes.append(f"not compiled, because {reason}")
        else:
            self.progress.say("Speed: compiling, which may take a minute ...")
            compiled, taken, reason = self.attempts.compile(ticket, check=True)
            if compiled is not None and taken is not None:
                ticket = yield taken
                quick = compiled
                if self.attempts.no_graph() is None:
                    ticket, _ = yield from self._time(compiled, ticket, self._warmup(), "compile")
                    quick = self.attempts.record(compiled, ticket)[0] or compiled
                ticket, _ = yield from self._time(quick, ticket, 2)
                ticket, spent, quick = yield from self._best(quick, ticket, timed)
                ticket, best, spent = yield from self._in_turns(
                    (path, best), (quick, spent), ticket
                )
                self.milliseconds |= {name: 1e3 * best, "compile": 1e3 * spent}
                if spent < WORTHWHILE * best:
                    name, path = "compile", quick
            else:
                notes.append(f"not compiled, because {reason}")
        found = ", ".join(f"{n} {m:.3g} ms" for n, m in self.milliseconds.items())
        text = "; ".join([f"a step takes {found}", *notes])
        self._settle(name, path, text if self.gpu or len(self.milliseconds) > 1 else "")
        yield path(*ticket)

    def _best(
        self, path: StepPath, ticket: Ticket, steps: int
    ) -> Generator[Taken, Ticket, tuple[Ticket, float, StepPath]]:
        """Time a path, also in blocks if its steps are short.

        Return the next step, the time of one step, and the faster path.
        """
        ticket, spent = yield from self._time(path, ticket, steps)
        blocks = self.attempts.in_blocks(path, ticket, spent)
        if blocks is not path:
            ticket, together = yield from self._time(blocks, ticket, max(steps, 4 * BLOCK))
            if together < spent:
                return ticket, together, blocks
        return ticket, spent, path

    def _in_turns(
        self, first: tuple[StepPath, float], second: tuple[StepPath, float], ticket: Ticket
    ) -> Generator[Taken, Ticket, tuple[Ticket, float, float]]:
        """Time two paths again, in turns; return the next step, and the time of each path.

        A device that had nothing to do while the compiler worked is slow at first.
        """
        times: tuple[list[float], list[float]] = ([], [])
        for _ in range(TURNS):
            for (path, guess), found in zip((first, second), times, strict=True):
                fit = int(TURN_SECONDS / guess)
                steps = min(
                    max(fit, TIMED_STEPS), max(self.feed.steps_left(ticket[0]) // 60, TIMED_STEPS)
                )
                ticket, spent = yield from self._time(path, ticket, steps)
                found.append(spent)
        return ticket, min(times[0]), min(times[1])

    def _keep(self, ticket: Ticket, why: str) -> Search:
        self._settle("eager", self.eager, why if self.gpu else "")
        yield self.eager(*ticket)

    def _warmup(self) -> int:
        """Return how many eager steps must come before a recording: DDP observes its first ones."""
        return 2 if self.group.alone else 12

    def _time(
        self, path: StepPath, ticket: Ticket, steps: int, name: str | None = None
    ) -> Generator[Taken, Ticket, tuple[Ticket, float]]:
        """Take `steps` steps; return the next one, and the seconds of each on the slowest replica.

        With a `name`, also remember how much memory the steps took. If a path puts steps off, its
        launches are timed; without any launch, it counts as infinitely slow.
        """
        self._wait()
        self.path, in_one = path, BLOCK if isinstance(path, Blocks) else 1
        if self.gpu and name:
            torch.cuda.reset_peak_memory_stats(self.group.device)
        marks = []
        for number in range(steps):
            began = self._mark()
            taken = path(*ticket)
            if not isinstance(path, Blocks) or path.launched:
                marks.append((began, self._mark()))
            if number + 1 == steps:
                self.flush()
                self._wait()
            if self.gpu and name:
                self.peaks[name] = torch.cuda.max_memory_allocated(self.group.device)
            ticket = yield taken
        # The median: another program on the machine slows a few steps down, not half of them.
        spent = [_seconds(began, ended) / in_one for began, ended in marks] or [math.inf]
        return ticket, max(self.group.objects(median(spent)))

    def _mark(self) -> float | torch.cuda.Event:
        """Return this moment, on the clock of the device if it works beside the host.

        Between two steps the host may wait for the device (for a log, or to let the loader catch
        up), so the clock of the host would miss what the device did meanwhile.
        """
        if not self.gpu:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record(torch.cuda.current_stream(self.group.device))
        return event

    def _wait(self) -> None:
        if self.gpu:
            torch.cuda.synchronize(self.group.device)

    def summary(self) -> dict[str, Any]:
        """Return the path for run.json, with the reason if the run ended before one was chosen."""
        if not self.settled and self.job.speed is not Speed.EAGER:
            short = "the run was over before another path was found"
            ragged = "no batch is full: --global-batch is larger than the training data"
            whole = self.feed.samples >= self.job.recipe.global_batch
            self.pick = self.pick._replace(why=short if whole else ragged)
            if self.job.speed is not Speed.AUTO:
                self.progress.say(f"Speed: eager: {self.pick.why}.")
        return self.pick._asdict()


def _seconds(began: float | torch.cuda.Event, ended: float | torch.cuda.Event) -> float:
    """Return the seconds from one mark to another."""
    if isinstance(began, float) and isinstance(ended, float):
        return ended - began
    assert isinstance(began, torch.cuda.Event)
    assert isinstance(ended, torch.cuda.Event)
    return 1e-3 * began.elapsed_time(ended)
