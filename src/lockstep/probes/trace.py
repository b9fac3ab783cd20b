"""Read the events of a run and put them together: ranks, loaders, passes, steps."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

from lockstep.probes.names import unpacked
from lockstep.probes.run_script import Outcome

Event = dict[str, Any]


@dataclass
class Pass:
    """One pass of one rank over a loader."""

    loader: Loader
    turn: int
    place: str
    epoch: int | None
    """The epoch that set_epoch gave the sampler."""
    batches: list[Event] = field(default_factory=list)
    complete: bool = False
    """Whether the pass reached the end of the loader."""
    trains: bool = False
    """Whether an optimizer stepped on the batches of this pass."""
    learned: int = 0
    """How many batches were taken when the optimizer last stepped on them."""
    exchanged: list[str] = field(default_factory=list)
    """The rank's collectives after the first batch and before the next training step."""
    saved_at: int | None = None
    """How many batches were taken when a checkpoint was last written."""

    @property
    def indices(self) -> list[int]:
        """Indices of its samples, in order; empty if the samples have none."""
        return [index for batch in self.batches for index in batch.get("indices", ())]

    @property
    def rows(self) -> list[int]:
        """A number for the content of each sample that a probe looked at."""
        return [row for batch in self.batches for row in batch.get("rows", ())]

    @property
    def evaluates(self) -> bool:
        """Whether it went over all data without training on them."""
        return self.complete and not self.trains and bool(self.batches)


@dataclass
class Loader:
    """A loader of one rank."""

    number: str
    """Its line and how many loaders that line made before: the same on all ranks."""
    place: str
    facts: Event
    passes: list[Pass] = field(default_factory=list)

    def __getitem__(self, name: str) -> Any:
        return self.facts.get(name)

    @property
    def trains(self) -> bool:
        """Whether the model trains on it."""
        return any(one.trains for one in self.passes)


@dataclass
class Rank:
    """All events of one rank."""

    number: int
    pid: int
    events: list[Event]
    loaders: list[Loader] = field(default_factory=list)
    draws: list[Event] = field(default_factory=list)
    """Draws of random numbers while the rank and its workers fetched data."""

    def of(self, *kinds: str) -> Iterator[Event]:
        """Yield events of some kinds, in order."""
        return (event for event in self.events if event["kind"] in kinds)

    @property
    def steps(self) -> list[Event]:
        """The steps of the first optimizer."""
        return [event for event in self.of("step") if event["optimizer"] == 0]

    @property
    def passes(self) -> list[Pass]:
        """The passes over all loaders, loader by loader."""
        return [one for loader in self.loaders for one in loader.passes]


@dataclass
class Trace:
    """A run on several ranks."""

    ranks: list[Rank]
    outcome: Outcome
    oracle: Event | None = None
    """The verdict of the gradient oracle."""
    resumed: Trace | None = None
    """The second run, resumed from the checkpoint of the first."""
    cut: bool = False
    """Whether the settings ended passes early."""
    fake_cuda: list[str] = field(default_factory=list)
    """What the CPU answered for: cuda, nccl and so on."""
    fake_data: list[str] = field(default_factory=list)
    """Missing data and libraries, and the replacement of each."""

    def of(self, *kinds: str) -> Iterator[Event]:
        """Yield events of some kinds, rank by rank."""
        return (event for rank in self.ranks for event in rank.of(*kinds))

    @property
    def size(self) -> int:
        """The number of ranks in the process group."""
        return max((event["size"] for event in self.of("group")), default=1)

    @property
    def on_gpus(self) -> bool:
        """Whether the script asks for GPUs."""
        return bool(self.fake_cuda) or any(e["backend"] == "nccl" for e in self.of("group"))

    @property
    def joins(self) -> bool:
        """Whether ranks may train on different numbers of batches, as torch's Join lets them."""
        return any(self.of("join"))

    def waiting(self) -> tuple[float, float, int]:
        """Return the share of a step spent waiting for data, its seconds, and how many steps count.

        Medians of the rank that waits least, because the others may wait for it.
        """
        found = []
        for rank in self.ranks:
            # The first step starts everything, and the first of a pass starts its workers.
            begun = [event["at"] for event in rank.of("pass")]
            pairs = [
                (a, b)
                for a, b in pairwise(rank.steps[1:])
                if b["batches"] and not any(a["at"] <= at <= b["at"] for at in begun)
            ]
            shares = [b["wait"] / max(b["at"] - a["at"], 1e-9) for a, b in pairs]
            if pairs:
                found.append((median(shares), median(b["wait"] for _, b in pairs), len(pairs)))
        return min(found, default=(0.0, 0.0, 0))

    def together(self, *, trains: bool | None = None) -> Iterator[list[Pass]]:
        """Yield the same pass of all ranks, for every pass that all of them began."""
        for same in self.loaders():
            for passes in zip(*(loader.passes for loader in same), strict=False):
                if trains is None or passes[0].trains == trains:
                    yield list(passes)

    def loaders(self) -> Iterator[list[Loader]]:
        """Yield the same loader of all ranks."""
        by_rank = [{loader.number: loader for loader in rank.loaders} for rank in self.ranks]
        for number in by_rank[0] if by_rank else ():
            if all(number in loaders for loaders in by_rank):
                yield [loaders[number] for loaders in by_rank]

    def looked(self, kind: str) -> Iterator[list[Event]]:
        """Yield the same step of all ranks, for steps that the probes looked at closely."""
        looked = [
            [e for e in r.of(kind) if e.keys() & {"parameters", "gradients"}] for r in self.ranks
        ]
        by_rank = [{(e["optimizer"], e["step"]): e for e in events} for events in looked]
        # Under Join the same number means the same step only as long as all ranks have batches.
        firsts = [one for rank in self.ranks for one in rank.passes if one.trains and not one.turn]
        most = min((len(p.batches) for p in firsts), default=0) if self.joins else None
        for key in by_rank[0] if by_rank else ():
            if all(key in events for events in by_rank) and (most is None or key[1] < most):
                yield [events[key] for events in by_rank]


def read(folder: Path, outcome: Outcome, *, alone: bool = False) -> Trace:
    """Read the events in a folder. With `alone`, one process is a rank without a group."""
    processes = {int(path.stem): _events(path) for path in sorted(folder.glob("*.jsonl"))}
    ranks: dict[int, Rank] = {}
    for pid, events in processes.items():
        group = next((event for event in events if event["kind"] == "group"), None)
        if group is not None:
            ranks[group["rank"]] = _rank(group["rank"], pid, events)
    if alone and not ranks:
        free = [p for p, e in processes.items() if not any(x["kind"] == "worker" for x in e)]
        # Other processes of the script have fewer events.
        for pid in sorted(free, key=lambda pid: -len(processes[pid]))[:1]:
            ranks[0] = _rank(0, pid, processes[pid])
    owners = {rank.pid: rank for rank in ranks.values()}
    for events in processes.values():
        worker = next((event for event in events if event["kind"] == "worker"), None)
        if worker is not None and worker["parent"] in owners:
            owners[worker["parent"]].draws += [e for e in events if _drew(e)]
    trace = Trace([ranks[number] for number in sorted(ranks)], outcome)
    fake_cuda = (what for event in trace.of("fake_cuda") for what in event["what"])
    fake_data = (e["what"] for all_ in processes.values() for e in all_ if e["kind"] == "fake_data")
    trace.fake_cuda = list(dict.fromkeys(fake_cuda))
    trace.fake_data = list(dict.fromkeys(fake_data))
    return trace


def _events(path: Path) -> list[Event]:
    found = []
    for line in path.read_text(errors="replace").splitlines():
        try:
            event = json.loads(line)
        except json.JSONDecodeError:
            continue  # half a line: the process was killed while it wrote
        if isinstance(event.get("indices"), str):
            event["indices"] = unpacked(event["indices"])
        found.append(event)
    return found


def _rank(number: int, pid: int, events: list[Event]) -> Rank:
    rank = Rank(number, pid, events)
    loaders: dict[str, Loader] = {}
    passes: dict[tuple[str, int], Pass] = {}
    since: list[Pass] = []  # passes that gave a batch since the last step
    windows: list[list[Pass]] = []  # the same, of all steps before
    untrained: list[Pass] = []  # passes that gave a batch, and nothing was trained since
    over: set[int] = set()  # passes that came to their end, by identity
    for event in events:
        kind = event["kind"]
        if kind == "loader":
            loaders[event["loader"]] = Loader(event["loader"], event["place"], event)
        elif kind == "pass":
            loader = loaders[event["loader"]]
            one = Pass(loader, event["turn"], event["place"], event["epoch"])
            loader.passes.append(one)
            # A loader that starts again has left its pass before, which was only a look.
            since = [p for p in since if p.loader is not loader]
            passes[event["loader"], event["turn"]] = one
        elif kind == "batch":
            one = passes[event["loader"], event["turn"]]
            one.batches.append(event)
            untrained = [*(p for p in untrained if p is not one), one]
            # Without gradients it is an evaluation, even one that is left before its end.
            if event["grad"]:
                since = [*(p for p in since if p is not one), one]
        elif kind == "passed":
            one = passes[event["loader"], event["turn"]]
            one.complete = event["complete"]
            over.add(id(one))
            if not event["complete"] or not one.learned:
                since = [p for p in since if p is not one]
        elif kind == "step":
            for one in since:
                one.learned = len(one.batches)
            windows.append(since)
            since, untrained = [], []
        elif kind == "collective":
            for one in untrained:
                one.exchanged.append(event["name"])
        elif kind == "wrote" and event["how"] == "saved":
            for one in passes.values():
                one.saved_at = len(one.batches) if id(one) not in over else None
        elif _drew(event):
            rank.draws.append(event)
    _tell_training(windows)
    for one in passes.values():
        # The checkpoint came after the last batch of a pass as long as others: the epoch was over.
        lengths = [len(other.batches) for other in one.loader.passes if other is not one]
        if one.saved_at == len(one.batches) and one.saved_at in lengths:
            one.saved_at = None
        # Some loops count batches themselves and never ask for one after the last.
        one.complete = one.complete or len(one.batches) == one.loader["length"]
    rank.loaders = list(loaders.values())
    return rank


def _tell_training(windows: list[list[Pass]]) -> None:
    """Mark the passes that an optimizer stepped on.

    An evaluation that was left early precedes one step only; loaders that are trained on together
    precede every step.
    """
    often = Counter(id(one) for passes in windows for one in passes)
    for passes in windows:
        once = all(often[id(one)] == 1 for one in passes)
        for one in passes:
            if once or often[id(one)] > 1 or len(passes) == 1:
                one.trains = True
            elif not one.trains:
                one.learned = 0


def _drew(event: Event) -> bool:
    # A stream's first draw may decide an order that all ranks must share.
    return event["kind"] == "drew" and not (event["streams"] and not event["number"])


def same_data(same: list[Loader]) -> bool:
    """Whether the ranks hold the same samples, in any order, as far as the events tell."""
    prints = [
        {
            name: (length, sum_)
            for name, (length, _, sum_) in (one["contents"] or {}).items()
            if length == one["samples"]
        }
        for one in same
    ]
    if any(prints):
        return all(one == prints[0] for one in prints)
    # Compare the samples that were delivered: the same index must mean the same sample.
    known = [
        dict(
            pair
            for p in one.passes
            for b in p.batches
            for pair in zip(b.get("indices", ()), b.get("rows", ()), strict=False)
        )
        for one in same
    ]
    shared = set.intersection(*(set(one) for one in known)) if known else set()
    return bool(shared) and all(one[i] == known[0][i] for one in known for i in shared)


def first_step(trace: Trace) -> str:
    """Return the line of the first step of the first optimizer."""
    return next((step["place"] for step in trace.ranks[0].steps), "")
