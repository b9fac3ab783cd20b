"""How a step is executed: as it is written, compiled, or recorded once and replayed.

A CUDA graph holds the whole step: indexing the data, forward, backward, exchange, update. The
search for the fastest path trains meanwhile: every step it takes counts.
"""

from __future__ import annotations

import math
import time
import warnings
from collections import Counter
from collections.abc import Callable, Generator
from statistics import median
from typing import Any, NamedTuple, cast

import torch
import torch.distributed as dist

from lockstep.console import Progress
from lockstep.data import Arrival
from lockstep.engine.recipe.job import Job
from lockstep.engine.recipe.recipe import raised
from lockstep.engine.replica import Replica
from lockstep.engine.sampler import Step
from lockstep.engine.step.cuda_graph import BLOCK, SHORT, Blocks, Captured
from lockstep.engine.step.metrics import Meter
from lockstep.engine.step.rollback import State, distance, length, unit_of
from lockstep.engine.step.training_step import Taken, TrainingStep
from lockstep.errors import LockstepError

Path = Callable[[Step, list[Arrival]], Taken]
Ticket = tuple[Step, list[Arrival]]
Search = Generator[Taken, Ticket, None]

FEW_STEPS = 30
"""A run of fewer steps is over before a search could pay."""
TIMED_STEPS = 8
TIMED_SECONDS, MOST_TIMED = 0.3, 200
"""Short steps are timed for this long, if they are not too many."""
TURNS, TURN_SECONDS = 3, 0.2
"""The last two paths are timed so often, for so long."""
WORTHWHILE = 0.97
"""Share of the time that another path must stay below to be taken: less is chance."""
COMPILE_PAYS = {"cuda": 120.0, "cpu": 900.0}
"""Seconds that must be left: compiling takes up to a minute, and may gain a third of them."""
MOST_PARTS = 8
"""Micro-batches whose batch norm is compiled one by one: torch.compile goes no further."""
MOST_RECORDED = 64
"""Micro-batches that one graph holds."""
ROUNDINGS = 8
"""Roundings in each layer whose order or number may differ: products, sums, norm, activation."""


class Pick(NamedTuple):
    """The path of a run, for its summary."""

    asked: str
    name: str
    why: str
    milliseconds: dict[str, float]


class Speeds:
    """Takes the steps of a run: a search for the path of steps of one round, one for two, ..."""

    def __init__(self, job: Job, replica: Replica, meter: Meter, progress: Progress) -> None:
        self.job, self.replica, self.meter, self.progress = job, replica, meter, progress
        self.eager = TrainingStep(replica, meter)
        self.of: dict[int, Speed] = {}
        self.taken: Counter[int] = Counter()

    def __call__(self, step: Step, arrivals: list[Arrival]) -> Taken:
        """Take one step."""
        rounds = step.stride.rounds
        if step.samples != rounds * self.replica.recipe.global_batch or step.stride.looks:
            # The last batch of an epoch has a shape of its own; who looks wants to see it all.
            self.flush()
            return self.eager(step, arrivals)
        if rounds not in self.of:
            self.of[rounds] = self._begin()
        for other, speed in self.of.items():
            if other != rounds:
                # What was put off comes first.
                speed.flush()
        self.taken[rounds] += 1
        return self.of[rounds](step, arrivals)

    def flush(self) -> None:
        """Take what was put off; call this before looking at the state."""
        for speed in self.of.values():
            speed.flush()

    def summary(self) -> dict[str, Any]:
        """For run.json: of the length that most steps had."""
        if not self.of:
            # The last batch of an epoch is always eager, also where it is the only one.
            return self._begin().summary()
        return self.of[self.taken.most_common(1)[0][0]].summary()

    def _begin(self) -> Speed:
        return Speed(self.job, self.replica, self.meter, self.progress, self.eager)


class Speed:
    """Takes steps of one length on the path that was asked for, or on the fastest."""

    def __init__(
        self,
        job: Job,
        replica: Replica,
        meter: Meter,
        progress: Progress,
        eager: TrainingStep,
    ) -> None:
        self.job, self.replica, self.meter, self.progress = job, replica, meter, progress
        self.group = replica.group
        self.gpu = self.group.device.type == "cuda"
        self.eager = eager
        self.path: Path = self.eager
        self.pick = Pick(job.speed, "eager", "", {})
        self.milliseconds: dict[str, float] = {}
        self.peaks: dict[str, int] = {}
        self.settled = False
        self.search: Search | None = self._search()
        next(self.search)

    def __call__(self, step: Step, arrivals: list[Arrival]) -> Taken:
        """Take one step."""
        if self.search is None:
            return self.path(step, arrivals)
        taken = self.search.send((step, arrivals))
        if self.settled:
            self.search = None
        return taken

    def flush(self) -> None:
        """Take what was put off; call this before looking at the state."""
        if isinstance(self.path, Blocks):
            self.path.flush()

    def _search(self) -> Search:
        """Find the path; a generator that is sent a step and gives what taking it gave."""
        ticket = yield Taken(0, 0.0)
        strategy = {
            "auto": self._auto,
            "eager": self._as_written,
            "compile": self._compiled,
            "graph": self._recorded,
        }[self.job.speed]
        yield from strategy(ticket)

    def _settle(self, name: str, path: Path, why: str) -> None:
        self.path, self.settled, self.replica.path = path, True, name
        if isinstance(path, Blocks):
            why = f"{why}; {BLOCK} steps in one launch".removeprefix("; ")
        self.pick = Pick(self.job.speed, name, why, self.milliseconds)
        if self.job.speed != "eager" and not (name == "eager" and not self.gpu and not why):
            self.progress.say(f"Speed: {name}{': ' + why if why else ''}.")
        if self.gpu:
            # Peak memory is that of the path, not of the search. What a graph uses while it is
            # replayed counts as free: remember what its steps took before they were recorded.
            self.replica.path_peak = max(self.replica.path_peak, self.peaks.get(name, 0))
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats(self.group.device)

    def _as_written(self, ticket: Ticket) -> Search:
        self._settle("eager", self.eager, "")
        yield self.eager(*ticket)

    def _recorded(self, ticket: Ticket) -> Search:
        reason = self._no_graph()
        if reason is None:
            ticket, _ = yield from self._time(self.eager, ticket, self._warmup(), "graph")
            graph, reason = self._record(self.eager, ticket)
            if graph is not None:
                ticket, spent = yield from self._time(graph, ticket, TIMED_STEPS)
                path = self._in_blocks(graph, ticket, spent)
                self._settle("graph", path, "")
                yield path(*ticket)
                return
        self._settle("eager", self.eager, f"no CUDA graph, because {reason}")
        yield self.eager(*ticket)

    def _compiled(self, ticket: Ticket) -> Search:
        reason = self._no_compile()
        if reason is None:
            compiled, taken, reason = self._compile(ticket)
            if compiled is not None and taken is not None:
                ticket = yield taken
                yield from self._settle_compiled(compiled, ticket)
                return
        self._settle("eager", self.eager, f"not compiled, because {reason}")
        yield self.eager(*ticket)

    def _settle_compiled(self, compiled: TrainingStep, ticket: Ticket) -> Search:
        """Compiled, and recorded as well where that is possible."""
        reason = self._no_graph()
        if reason is None:
            ticket, _ = yield from self._time(compiled, ticket, self._warmup(), "compile")
            graph, reason = self._record(compiled, ticket)
            if graph is not None:
                ticket, spent = yield from self._time(graph, ticket, TIMED_STEPS)
                path = self._in_blocks(graph, ticket, spent)
                self._settle("compile", path, "and replayed as a CUDA graph")
                yield path(*ticket)
                return
        self._settle("compile", compiled, f"no CUDA graph, because {reason}" if self.gpu else "")
        yield compiled(*ticket)

    def _auto(self, ticket: Ticket) -> Search:
        """Time eager steps, then a graph, then, if the run is long, compiled kernels."""
        left = self._left(ticket[0])
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
        name, path = "eager", cast(Path, self.eager)
        notes: list[str] = []
        reason = self._no_graph()
        if reason is None:
            graph, reason = self._record(self.eager, ticket)
            if graph is not None:
                reason = self._differs(graph, ticket)
            if graph is not None and reason is None:
                ticket, spent, quick = yield from self._best(graph, ticket, timed)
                self.milliseconds["graph"] = 1e3 * spent
                if spent < WORTHWHILE * best:
                    name, path, best = "graph", quick, spent
        if reason is not None and self.gpu:
            notes.append(f"no CUDA graph, because {reason}")
        pays = COMPILE_PAYS[self.group.device.type]
        ahead = best * self._left(ticket[0])
        if ahead < pays:
            notes.append(f"compiling would not pay in {ahead:.0f} s")
        elif (reason := self._no_compile()) is not None:
            notes.append(f"not compiled, because {reason}")
        else:
            self.progress.say("Speed: compiling, which may take a minute ...")
            compiled, taken, reason = self._compile(ticket, check=True)
            if compiled is not None and taken is not None:
                ticket = yield taken
                quick = compiled
                if self._no_graph() is None:
                    ticket, _ = yield from self._time(compiled, ticket, self._warmup(), "compile")
                    quick = self._record(compiled, ticket)[0] or compiled
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
        self, path: Path, ticket: Ticket, steps: int
    ) -> Generator[Taken, Ticket, tuple[Ticket, float, Path]]:
        """Time it, and in blocks too if its steps are short: the next step, its time, the path."""
        ticket, spent = yield from self._time(path, ticket, steps)
        blocks = self._in_blocks(path, ticket, spent)
        if blocks is not path:
            ticket, together = yield from self._time(blocks, ticket, max(steps, 4 * BLOCK))
            if together < spent:
                return ticket, together, blocks
        return ticket, spent, path

    def _in_turns(
        self, first: tuple[Path, float], second: tuple[Path, float], ticket: Ticket
    ) -> Generator[Taken, Ticket, tuple[Ticket, float, float]]:
        """Time two paths again, one after the other: the next step, and the time of each.

        A device that had nothing to do while the compiler worked is slow at first.
        """
        times: tuple[list[float], list[float]] = ([], [])
        for _ in range(TURNS):
            for (path, guess), found in zip((first, second), times, strict=True):
                fit = int(TURN_SECONDS / guess)
                steps = min(max(fit, TIMED_STEPS), max(self._left(ticket[0]) // 60, TIMED_STEPS))
                ticket, spent = yield from self._time(path, ticket, steps)
                found.append(spent)
        return ticket, min(times[0]), min(times[1])

    def _in_blocks(self, path: Path, ticket: Ticket, spent: float) -> Path:
        """Several steps in one graph if they are short; the same path if not."""
        if not isinstance(path, Captured) or spent > SHORT:
            return path
        blocks = None
        # Data that fit on the device of this replica may not fit on another's.
        reason = None if Blocks.fits(path, *ticket) else "a step cannot be put off"
        if self._agreed(reason) is None:
            try:
                blocks = Blocks(path, *ticket)
            except Exception as error:
                reason = _first_line(error)
                self._break_off()
            self.replica.update.forget_gradients()
            reason = self._agreed(reason)
        return path if blocks is None or reason is not None else blocks

    def _left(self, step: Step) -> int:
        """Steps from here to the end, if they go on as this one."""
        ahead = (1.0 - step.stride.progress) * self.replica.growth.planned / step.stride.gain
        most = math.inf if self.job.max_steps is None else self.job.max_steps - step.number
        return round(min(ahead + 0.5, most))

    def _keep(self, ticket: Ticket, why: str) -> Search:
        self._settle("eager", self.eager, why if self.gpu else "")
        yield self.eager(*ticket)

    def _warmup(self) -> int:
        """Eager steps before a step can be recorded: DDP observes its first ones."""
        return 2 if self.group.alone else 12

    def _time(
        self, path: Path, ticket: Ticket, steps: int, name: str | None = None
    ) -> Generator[Taken, Ticket, tuple[Ticket, float]]:
        """Take `steps` steps; the next one, and the seconds of each on the slowest replica.

        With a `name`, also remember how much memory they took. Of a path that puts steps off, the
        launches are timed; if none of them was a launch, it is as slow as can be.
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
        """This moment: of the device, if it works beside the host.

        Between two steps the host may wait for the device (for a log, or to let the loader catch
        up), so its own clock would miss what the device did meanwhile.
        """
        if not self.gpu:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record(torch.cuda.current_stream(self.group.device))
        return event

    def _wait(self) -> None:
        if self.gpu:
            torch.cuda.synchronize(self.group.device)

    def _no_graph(self) -> str | None:
        """Why this run cannot be recorded, if that is known beforehand."""
        if not self.gpu:
            return "the replicas compute on the CPU"
        if self.job.timeline:
            return "the timeline looks into the step"
        if self.job.noise:
            return "the noise scale looks at every gradient"
        if not self.group.alone and dist.get_backend() != "nccl":
            return "gloo exchanges gradients in host memory"
        if self.job.wire == "powersgd" and not self.group.alone:
            return "PowerSGD counts its steps on the host"
        return self.replica.update.obstacle

    def _no_compile(self) -> str | None:
        """Why this run is not compiled, if that is known beforehand."""
        if self.job.exact:
            return (
                "a compiler may order sums differently on another day, and exact mode promises bits"
            )
        if self.job.timeline:
            return "the timeline looks into the step"
        parts = self.replica.plan.accumulation
        if self.replica.norms and parts > MOST_PARTS:
            return f"batch norm would be compiled for each of {parts} micro-batches"
        return None

    def _agreed(self, reason: str | None) -> str | None:
        """The first reason of any replica: they go the same way or not at all."""
        return next((r for r in self.group.objects(reason) if r is not None), None)

    def _record(self, inner: TrainingStep, ticket: Ticket) -> tuple[Captured | None, str | None]:
        """The step as a graph, or the reason why not."""
        graph, reason = None, self._too_long(ticket[0]) or self._waits_for_host(inner, ticket)
        if self._agreed(reason) is None:
            update = self.replica.update
            numbers, state, go_back = update.numbers(), update.state(), update.bookmark()
            try:
                torch.cuda.empty_cache()
                graph = Captured(inner, *ticket)
            except Exception as error:
                reason = _first_line(error)
                self._break_off()
            if update.numbers() != numbers:
                reason = "the optimizer counts in Python numbers, which a graph would not change"
            elif [id(tensor) for tensor in update.state()] != [id(tensor) for tensor in state]:
                reason = "the optimizer makes its state anew, where a graph would not look for it"
            if reason is not None:
                go_back()
            update.forget_gradients()
        reason = self._agreed(reason)
        return (graph if reason is None else None), reason

    @staticmethod
    def _too_long(step: Step) -> str | None:
        parts = len(step.parts)
        return f"a step has {parts} parts" if parts > MOST_RECORDED else None

    def _break_off(self) -> None:
        """After a recording that failed, which leaves the generator waiting for its end."""
        if self.gpu:
            generator = torch.cuda.default_generators[self.group.device.index or 0]
            generator.graphsafe_set_state(generator.clone_state())

    def _waits_for_host(self, inner: TrainingStep, ticket: Ticket) -> str | None:
        """Take a step and take it back: does anything in it ask the device for a value?"""
        state = State(self.replica, self.meter)
        index = self.group.device.index or 0
        mode = torch.cuda.get_sync_debug_mode()
        # "A prototype": what it does not notice, the recording will.
        warnings.filterwarnings("ignore", message="Synchronization debug mode")
        try:
            inner.announce(ticket[0])
            torch.cuda.set_sync_debug_mode("error")
            inner.compute(*ticket)
        except LockstepError:
            raise
        except Exception as error:
            return raised("a step asks the device for a value", error)
        finally:
            torch.cuda.set_sync_debug_mode(mode)
            state.restore()
            self.replica.update.forget_gradients()
        drew = torch.cuda.default_generators[index].get_offset() > 0
        if drew and len(ticket[0].parts) > 1:
            return "layers draw from torch's own generator, which is seeded anew for every part"
        return None

    def _compile(
        self, ticket: Ticket, *, check: bool = False
    ) -> tuple[TrainingStep | None, Taken | None, str | None]:
        """A compiled step and what taking it gave; or the reason why not, and nothing taken."""
        state = State(self.replica, self.meter)
        compiled, reason, taken = None, None, None
        try:
            compiled = TrainingStep(self.replica, self.meter, compiled=True)
            # The compiler cannot make what the first augmentation of an epoch makes.
            self.eager.announce(ticket[0])
            self.eager.read(ticket[1][0])
            with warnings.catch_warnings():
                # What it says about its own work is of no use to the user.
                warnings.simplefilter("ignore")
                taken = compiled(*ticket)
        except LockstepError:
            raise
        except Exception as error:
            reason = _first_line(error)
        reason = self._agreed(reason)
        if compiled is not None and reason is None and check:
            state.restore()
            reason = self._differs(compiled, ticket, state)
            if reason is None:
                taken = compiled(*ticket)
        if reason is not None:
            state.restore()
            self.replica.update.forget_gradients()
            return None, None, reason
        return compiled, taken, None

    def _differs(self, path: Path, ticket: Ticket, state: State | None = None) -> str | None:
        """Take a step both ways and take it back: is the difference more than rounding?

        How much rounding matters is measured: a third step starts from weights that are off by
        one rounding each. What that changes, times the roundings of a layer, is the bound, with
        one rounding of the step and one of the weights that it ends in.
        """
        state = state or State(self.replica, self.meter)
        path(*ticket)
        theirs = state.weights_moved()
        state.restore()
        self.eager(*ticket)
        ours = state.weights_moved()
        state.restore()
        if self.job.exact:
            same = all(torch.equal(a, b) for a, b in zip(theirs, ours, strict=True))
            return self._agreed(None if same else "its bits are not those of eager steps")
        unit = unit_of(self.replica)
        state.nudge(unit)
        self.eager(*ticket)
        nudged = state.weights_moved(unit)
        state.restore()
        difference, noise, size = distance(theirs, ours), distance(nudged, ours), length(ours)
        bound = ROUNDINGS * noise + unit * size + state.rounding()
        reason = None
        if not difference <= bound:
            reason = (
                f"it would change the weights otherwise than eager steps: by {difference:.2g} "
                f"where rounding explains {bound:.2g}"
            )
        return self._agreed(reason)

    def summary(self) -> dict[str, Any]:
        """For run.json; says so if the run has never come to what was asked for."""
        if not self.settled and self.job.speed != "eager":
            short = "the run was over before another path was found"
            ragged = "no batch is full: --global-batch is larger than the training data"
            whole = self.replica.order.size >= self.replica.recipe.global_batch
            self.pick = self.pick._replace(why=short if whole else ragged)
            if self.job.speed != "auto":
                self.progress.say(f"Speed: eager: {self.pick.why}.")
        return self.pick._asdict()


def _seconds(began: float | torch.cuda.Event, ended: float | torch.cuda.Event) -> float:
    """From one mark to another."""
    if isinstance(began, float) and isinstance(ended, float):
        return ended - began
    assert isinstance(began, torch.cuda.Event)
    assert isinstance(ended, torch.cuda.Event)
    return 1e-3 * began.elapsed_time(ended)


def _first_line(error: BaseException) -> str:
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0] if text else 'no message'}"
