"""What the probes noted, put together: ranks, loaders, passes over them, steps."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
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
    """What the sampler was told."""
    batches: list[Event] = field(default_factory=list)
    complete: bool = False
    """Whether the loader came to its end."""
    trains: bool = False
    """Whether an optimizer stepped on its batches."""
    learned: int = 0
    """Batches that were taken when the optimizer last stepped on them."""
    exchanged: list[str] = field(default_factory=list)
    """Collectives of the rank after its first batch and before the next training step."""
    saved_at: int | None = None
    """Batches that were taken when a checkpoint was last written."""

    @property
    def indices(self) -> list[int]:
        """Of its samples, in order; empty if they have none."""
        return [index for batch in self.batches for index in batch.get("indices", ())]

    @property
    def rows(self) -> list[int]:
        """A number for the content of each sample that was looked at."""
        return [row for batch in self.batches for row in batch.get("rows", ())]

    @property
    def evaluates(self) -> bool:
        """Whether it went over all data, and nothing was learned from them."""
        return self.complete and not self.trains and bool(self.batches)


@dataclass
class Loader:
    """A loader of one rank."""

    number: str
    """Its place and how many were made there before: the same on all ranks."""
    place: str
    facts: Event
    passes: list[Pass] = field(default_factory=list)

    def __getitem__(self, name: str) -> Any:
        return self.facts.get(name)

    @property
    def trains(self) -> bool:
        """Whether the model learns from it."""
        return any(one.trains for one in self.passes)


@dataclass
class Rank:
    """Everything that one rank did."""

    number: int
    pid: int
    events: list[Event]
    loaders: list[Loader] = field(default_factory=list)
    draws: list[Event] = field(default_factory=list)
    """Random numbers drawn while data were fetched, by the rank and its workers."""

    def of(self, *kinds: str) -> Iterator[Event]:
        """Events of some kinds, in order."""
        return (event for event in self.events if event["kind"] in kinds)

    @property
    def steps(self) -> list[Event]:
        """Steps of the first optimizer."""
        return [event for event in self.of("step") if event["optimizer"] == 0]

    @property
    def passes(self) -> list[Pass]:
        """Over all loaders, loader by loader."""
        return [one for loader in self.loaders for one in loader.passes]


@dataclass
class Trace:
    """A run on several ranks."""

    ranks: list[Rank]
    outcome: Outcome
    oracle: Event | None = None
    """What the gradient oracle said."""
    resumed: Trace | None = None
    """The second start, from what the first one saved."""
    cut: bool = False
    """Whether passes were ended early, as asked."""
    stood_in: list[str] = field(default_factory=list)
    """What the CPU stood in for."""
    pretended: list[str] = field(default_factory=list)
    """Data and libraries that were not here, and what stood in for each."""

    def of(self, *kinds: str) -> Iterator[Event]:
        """Events of some kinds, rank by rank."""
        return (event for rank in self.ranks for event in rank.of(*kinds))

    @property
    def size(self) -> int:
        """Ranks in the group, as they say themselves."""
        return max((event["size"] for event in self.of("group")), default=1)

    @property
    def on_gpus(self) -> bool:
        """Whether the script asks for GPUs."""
        return bool(self.stood_in) or any(e["backend"] == "nccl" for e in self.of("group"))

    @property
    def joins(self) -> bool:
        """Whether ranks may train on different numbers of batches, as torch's Join lets them."""
        return any(self.of("join"))

    def waiting(self) -> tuple[float, float, int]:
        """Share of a step that is waiting for data, the seconds of it, and how many were seen.

        Medians, of the rank that waits least: the others may wait for it.
        """
        found = []
        for rank in self.ranks:
            # The first step has to start everything, and the first of a pass its workers.
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
        """The same pass of all ranks, for every pass that all of them began."""
        for same in self.loaders():
            for passes in zip(*(loader.passes for loader in same), strict=False):
                if trains is None or passes[0].trains == trains:
                    yield list(passes)

    def loaders(self) -> Iterator[list[Loader]]:
        """The same loader of all ranks."""
        by_rank = [{loader.number: loader for loader in rank.loaders} for rank in self.ranks]
        for number in by_rank[0] if by_rank else ():
            if all(number in loaders for loaders in by_rank):
                yield [loaders[number] for loaders in by_rank]

    def looked(self, kind: str) -> Iterator[list[Event]]:
        """The same closely looked-at step of all ranks."""
        by_rank = [
            {
                (e["optimizer"], e["step"]): e
                for e in rank.of(kind)
                if "parameters" in e or "gradients" in e
            }
            for rank in self.ranks
        ]
        # Under Join the same number means the same step only as long as all ranks have batches.
        firsts = [one for rank in self.ranks for one in rank.passes if one.trains and not one.turn]
        most = min((len(p.batches) for p in firsts), default=0) if self.joins else None
        for key in by_rank[0] if by_rank else ():
            if all(key in events for events in by_rank) and (most is None or key[1] < most):
                yield [events[key] for events in by_rank]


def read(folder: Path, outcome: Outcome, *, alone: bool = False) -> Trace:
    """Put together what was noted in a folder; `alone`: one process is a rank without a group."""
    processes = {int(path.stem): _events(path) for path in sorted(folder.glob("*.jsonl"))}
    ranks: dict[int, Rank] = {}
    for pid, events in processes.items():
        group = next((event for event in events if event["kind"] == "group"), None)
        if group is not None:
            ranks[group["rank"]] = _rank(group["rank"], pid, events)
    if alone and not ranks:
        free = [p for p, e in processes.items() if not any(x["kind"] == "worker" for x in e)]
        # Whatever else the script started knows less.
        for pid in sorted(free, key=lambda pid: -len(processes[pid]))[:1]:
            ranks[0] = _rank(0, pid, processes[pid])
    owners = {rank.pid: rank for rank in ranks.values()}
    for events in processes.values():
        worker = next((event for event in events if event["kind"] == "worker"), None)
        if worker is not None and worker["parent"] in owners:
            owners[worker["parent"]].draws += [e for e in events if _drew(e)]
    trace = Trace([ranks[number] for number in sorted(ranks)], outcome)
    stood_in = (what for event in trace.of("stood_in") for what in event["what"])
    trace.stood_in = list(dict.fromkeys(stood_in))
    trace.pretended = _pretended(processes.values())
    return trace


def pretended(folder: Path) -> list[str]:
    """Data and libraries that were stood in for, by any process that left notes in a folder."""
    return _pretended(_events(path) for path in sorted(folder.glob("*.jsonl")))


def _pretended(processes: Iterable[list[Event]]) -> list[str]:
    facts = (e["what"] for events in processes for e in events if e["kind"] == "pretended")
    return list(dict.fromkeys(facts))


def _events(path: Path) -> list[Event]:
    found = []
    for line in path.read_text(errors="replace").splitlines():
        try:
            event = json.loads(line)
        except json.JSONDecodeError:
            continue  # half a line: the process was ended while it wrote
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
            # Whoever begins anew has left the pass before: it was only looked into.
            since = [p for p in since if p.loader is not loader]
            passes[event["loader"], event["turn"]] = one
        elif kind == "batch":
            one = passes[event["loader"], event["turn"]]
            one.batches.append(event)
            untrained = [*(p for p in untrained if p is not one), one]
            # Nothing is learned without gradients: an evaluation that is left before its end.
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
        # Saved, nothing was taken after it, and it is as long as others: the epoch was over.
        lengths = [len(other.batches) for other in one.loader.passes if other is not one]
        if one.saved_at == len(one.batches) and one.saved_at in lengths:
            one.saved_at = None
        # Some loops count by themselves and never ask for the batch after the last one.
        one.complete = one.complete or len(one.batches) == one.loader["length"]
    rank.loaders = list(loaders.values())
    return rank


def _tell_training(windows: list[list[Pass]]) -> None:
    """Set which passes an optimizer stepped on.

    An evaluation that was left early stands beside the training in the next step, and never
    again; loaders that are trained on together meet in every step.
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
    # A stream's first draw may be for an order that has to be the same everywhere.
    return event["kind"] == "drew" and not (event["streams"] and not event["number"])


def same_data(same: list[Loader]) -> bool:
    """Whether the ranks hold the same samples, in whatever order, as far as one can see."""
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
    # Nothing to compare but what was delivered: the same index must be the same sample.
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
    """Where the first step of the first optimizer is."""
    return next((step["place"] for step in trace.ranks[0].steps), "")
