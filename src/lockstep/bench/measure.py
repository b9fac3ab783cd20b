"""Measure the sides on one work: they alternate, and ratios are taken within a round.

Machines drift: clocks change with the temperature, neighbours come and go. Two sides that run one
after the other see nearly the same machine. The order reverses after each round, so that no side
is always the first.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from typing import Any

import torch

from lockstep.bench.assignment import Assignment
from lockstep.bench.entries import Entry
from lockstep.bench.side_processes import Crew, Failure, RunReplica
from lockstep.bench.turns import Piped, Report, Turn
from lockstep.bench.works import Work
from lockstep.data import Resident
from lockstep.engine.recipe.job import SpeedName
from lockstep.engine.recipe.recipe import PrecisionName
from lockstep.processes.fork import prepare
from lockstep.processes.ports import free_port
from lockstep.world import World

ROUND_SECONDS = 1.5
"""Length of a turn if the number of steps is not given."""
WARM_STEPS = 10
"""Fewest steps before the first round: a side may change how it computes on the way."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How to measure."""

    device: str = "cpu"
    """`cpu` or `cuda`."""
    rounds: int = 5
    steps: int = 0
    """Steps in a turn; 0 means as many as take about a second and a half."""
    warmup: float = 3.0
    """Seconds that each side trains before the first round."""
    precision: PrecisionName | None = None
    """The precision of sides that can choose. None: the work's on a GPU, fp32 on the CPU."""
    speed: SpeedName = "auto"
    """How lockstep executes a step."""


@dataclass
class Taken:
    """The measurements of one side."""

    entry: Entry
    precision: str
    rates: list[float] = field(default_factory=list)
    """Samples per second of all replicas together, by round."""
    steps: int = 0
    """Timed steps in a turn."""
    seconds_to_first_step: float | None = None
    parameters: int | None = None
    peak_memory_bytes: int | None = None
    path: str = ""
    failure: Failure | None = None
    crew: Crew = field(default_factory=Crew)

    def note(self, reports: list[Report] | Failure) -> None:
        """Note what does not change from round to round; end a side that failed."""
        if isinstance(reports, Failure):
            self.failure = reports
            self.crew.end()
            return
        self.parameters = reports[0].parameters
        self.peak_memory_bytes = max(r.peak_memory_bytes for r in reports)
        self.path = reports[0].path


def measure(
    work: Work,
    entries: Sequence[Entry],
    settings: Settings,
    advance: Callable[[str], None] = lambda name: None,
) -> dict[str, Any]:
    """Run all sides and return their numbers; call `advance` with a side's name after each turn."""
    prepare()
    torch.set_num_threads(1)
    samples = work.samples()
    precision = settings.precision or (work.precision if settings.device == "cuda" else "fp32")
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="lockstep-")))
        taken: dict[str, Taken] = {}
        for entry in entries:
            own: PrecisionName = "fp32" if entry.side.only_fp32 else precision
            side = taken[entry.name] = Taken(entry, own)
            stack.callback(side.crew.end)
            place = folder / entry.name
            place.mkdir()
            replica = partial(_run, free_port(), work, samples, entry, settings, own, place)
            _start(side, replica, place / "log", settings)
            advance(entry.name)
        try:
            for number in range(settings.rounds):
                for name in order(list(taken), number):
                    _round(taken[name], settings)
                    advance(name)
        except KeyboardInterrupt:
            if not all(t.rates or t.failure for t in taken.values()):
                raise
            raise Stopped(document(work, list(taken.values()))) from None
    return document(work, list(taken.values()))


class Stopped(KeyboardInterrupt):
    """The user stopped the bench after a round or more; `document` holds those rounds."""

    def __init__(self, document: dict[str, Any]) -> None:
        super().__init__()
        self.document = document


def order(names: list[str], number: int) -> list[str]:
    """Return the order of the sides in round `number`.

    >>> order(["a", "b", "c"], 0), order(["a", "b", "c"], 1)
    (['a', 'b', 'c'], ['c', 'b', 'a'])
    """
    return names if number % 2 == 0 else names[::-1]


def _run(
    port: int,
    work: Work,
    samples: Resident,
    entry: Entry,
    settings: Settings,
    precision: PrecisionName,
    folder: Path,
    rank: int,
    pipe: Connection,
) -> None:
    """Run one replica of a side."""
    device = "cpu" if settings.device == "cpu" else f"cuda:{rank}"
    assignment = Assignment(
        work=work,
        samples=samples,
        world=World(rank=rank, size=entry.replicas, local_rank=rank, device=device),
        pace=Piped(pipe, torch.device(device)),
        port=port,
        folder=folder,
        precision=precision,
        speed=settings.speed,
    )
    entry.side.run(assignment)


def _start(taken: Taken, replica: RunReplica, log: Path, settings: Settings) -> None:
    """Start a side, warm it up, and find how many steps fill a turn."""
    crew = taken.crew
    started = time.perf_counter()
    reports = crew.start(taken.entry.replicas, replica, log)
    taken.seconds_to_first_step = time.perf_counter() - started
    done, turn, pace = 1, 1, 0.0
    warm = time.perf_counter()
    while not isinstance(reports, Failure):
        left = settings.warmup - (time.perf_counter() - warm)
        if left <= 0 and done >= WARM_STEPS:
            break
        # The bench decides the number of steps, because all replicas must do the same.
        reports = crew.turn(Turn(lead=0, steps=turn, frees=False))
        if isinstance(reports, Failure):
            break
        done += turn
        pace = max(r.seconds for r in reports) / turn
        turn = max(1, min(2 * turn, int(max(left, 0.1) / pace)))
    if not isinstance(reports, Failure):
        reports = crew.turn(Turn(lead=0, steps=1, frees=True))
    taken.steps = settings.steps or max(3, round(ROUND_SECONDS / pace) if pace else 0)
    taken.note(reports)


def _round(taken: Taken, settings: Settings) -> None:
    if taken.failure is not None:
        return
    # On a GPU the side must allocate again the memory that it gave back.
    lead = 3 if settings.device == "cuda" else 1
    reports = taken.crew.turn(Turn(lead=lead, steps=taken.steps, frees=True))
    taken.note(reports)
    if not isinstance(reports, Failure):
        taken.rates.append(rate(reports))


def rate(reports: Sequence[Report]) -> float:
    """Return the samples per second of all replicas; the slowest replica sets the time.

    >>> rate([Report(2.0, 64, 0, 0), Report(4.0, 64, 0, 0)])
    32.0
    """
    return sum(r.samples for r in reports) / max(r.seconds for r in reports)


def ratios(base: Sequence[float], other: Sequence[float]) -> list[float]:
    """Return how much faster the base is, in each round that both have finished.

    >>> ratios([30.0, 20.0], [10.0, 20.0])
    [3.0, 1.0]
    """
    return [ours / theirs for ours, theirs in zip(base, other, strict=False)]


def spread(values: Sequence[float]) -> dict[str, float] | None:
    """Return the median, the smallest and the largest value.

    >>> spread([3.0, 1.0, 2.0])
    {'median': 2.0, 'min': 1.0, 'max': 3.0}
    """
    if not values:
        return None
    return {"median": median(values), "min": min(values), "max": max(values)}


def document(work: Work, taken: Sequence[Taken]) -> dict[str, Any]:
    """Return the result of one work, for JSON and for the tables."""
    names = [t.entry.name for t in taken]
    base = taken[names.index("lockstep") if "lockstep" in names else 0]
    sides: dict[str, Any] = {}
    for t in taken:
        against = ratios(base.rates, t.rates)
        sides[t.entry.name] = {
            "sentence": t.entry.side.sentence,
            "replicas": t.entry.replicas,
            "precision": t.precision,
            "path": t.path,
            "parameters": t.parameters,
            "steps_per_round": t.steps,
            "seconds_to_first_step": t.seconds_to_first_step,
            "peak_memory_bytes": t.peak_memory_bytes,
            "samples_per_second": t.rates,
            "rate": spread(t.rates),
            "base_over_this": against,
            "ratio": spread(against),
            "error": t.failure.reason if t.failure else None,
            "trace": t.failure.trace if t.failure else None,
        }
    return {
        "work": work.name,
        "sentence": work.sentence,
        "batch": work.batch,
        "base": base.entry.name,
        "sides": sides,
    }
