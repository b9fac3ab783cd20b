"""Read what a run of the original showed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lockstep.probes.spans import Span
from lockstep.probes.trace import Loader, Rank

Place = Callable[[Any], Span]


@dataclass(frozen=True, kw_only=True)
class SeenLoader:
    """A place where DataLoaders are made, of which at least one is trained on."""

    span: Span
    direct: bool
    """Whether the expression at that place is the loader, and not something that holds it."""
    switch: str = ""
    """An expression that is true for those loaders that are trained on; empty if all are."""
    looks: bool = False
    """Whether the run also went through it without training."""


@dataclass(frozen=True, kw_only=True)
class Forward:
    """A place where a script calls a module that is trained."""

    span: Span
    models: frozenset[int]
    """The modules that are called there, by number."""
    learns: bool
    """Whether backward passes went through its result."""
    inside: bool
    """Whether it is in a method of another module, or a library calls the module."""
    stack: tuple[Span, ...] = ()
    """The calls that led there, the innermost first."""


@dataclass(frozen=True, kw_only=True)
class Draw:
    """A place where a script draws random numbers while it trains."""

    span: Span
    library: str
    """`torch`, `numpy` or `random`."""
    fetching: bool
    """Whether a data set draws it, for a sample."""
    by_sample: bool
    """Whether it draws numbers for each sample of the batch."""
    in_stream: bool = False
    """Whether a stream draws it: all processes must draw the same there."""


@dataclass(frozen=True)
class Made:
    """A file that the script made before training, as it was missing."""

    written: tuple[Span, ...]
    """The calls that led to the writing, the innermost first."""
    asked: tuple[tuple[Span, ...], ...]
    """The calls that led to each question whether it is there."""


@dataclass
class Seen:
    """What one run of the original showed."""

    ran: bool = True
    """Whether a run has shown this; False for what reading alone suggests."""
    loaders: list[SeenLoader] = field(default_factory=list)
    ahead: bool = False
    """Whether a batch may be taken before the one in hand is learned from."""
    evaluated: list[Span] = field(default_factory=list)
    """Where loaders are made that are only looked at."""
    forwards: list[Forward] = field(default_factory=list)
    evaluates: list[Span] = field(default_factory=list)
    """Where models are evaluated, and treat every sample alone."""
    moves_norms: list[Span] = field(default_factory=list)
    """Where batch norm sees data of a model that does not learn from them."""
    draws: list[Draw] = field(default_factory=list)
    uneven: list[Span] = field(default_factory=list)
    """Means that learn, over a number of items that changes from batch to batch."""
    rereads: list[Span] = field(default_factory=list)
    """Where the script reads a file that it has written."""
    made: list[Made] = field(default_factory=list)
    """Files that the script makes if they are missing."""
    unused: bool = False
    """Whether some step left parameters of a trained model without a gradient."""
    again: bool = False
    """Whether one backward pass went through two forward passes of a model."""
    shared: bool = False
    """Whether two models that the script calls share parameters."""
    numbered_gpu: bool = False
    """Whether the script asks for a GPU with a number above 0."""
    norms: bool = False
    """Whether a trained model has batch norm."""
    buffers: bool = True
    """Whether a trained model has buffers."""
    loose: bool = False
    """Whether parameters are trained that belong to no module that the script calls."""
    grad_of_weights: bool = False
    """Whether the script asks autograd for gradients of weights itself."""
    acts: list[list[tuple[str, Span]]] = field(default_factory=list)
    """What led to each of the first steps: backward, unscale, clip and step, in their order."""

    @property
    def by_ddp(self) -> bool:
        """Whether DDP can average all gradients: every trained module is called from outside."""
        taught = [one for one in self.forwards if one.learns]
        inside = any(one.inside or not one.span.path for one in taught)
        return bool(taught) and not (
            inside
            or self.loose
            or self.shared
            or self.grad_of_weights
            or (self.again and self.unused)
        )


def moved(home: Path, name: str, script: Path) -> Place:
    """Return a function that turns a place of a run into the same place in the user's files.

    In the run, the script lies in `home` under a `name` that may differ from its own.
    """

    def move(span: Any) -> Span:
        path = Path(span[0])
        if span[0] and path.is_relative_to(home):
            inner = path.relative_to(home)
            path = script if inner == Path(name) else script.parent / inner
        return Span(str(path) if span[0] else "", *span[1:])

    return move


def seen(rank: Rank, place: Place) -> Seen:
    """Return what the notes of a run tell."""
    found = Seen()
    _loaders(rank, place, found)
    places: dict[Span, list[Any]] = defaultdict(list)
    for event in rank.of("forwards"):
        places[place(event["span"])].append(event)
    for span, events in places.items():
        models = frozenset(event["model"] for event in events)
        learns = any(event["learned"] for event in events)
        inside = any(event["inside"] for event in events)
        calls = tuple(place(one) for one in events[0]["stack"])
        found.forwards.append(
            Forward(span=span, models=models, learns=learns, inside=inside, stack=calls)
        )
    learning = {place(event["span"]) for event in rank.of("forwards") if event["learned"]}
    for event in rank.of("evaluates"):
        span = place(event["span"])
        if event["whole"] and event["rows"] > 1 and span not in learning:
            found.evaluates.append(span)
    for event in rank.of("moves_norms"):
        span = place(event["span"])
        if event["direct"] and span not in learning:
            found.moves_norms.append(span)
    found.buffers = any(event["buffers"] for event in rank.of("model"))
    for event in rank.of("model"):
        found.unused = found.unused or event["unused"]
        found.again = found.again or event["again"]
        found.shared = found.shared or event["shared"]
        found.norms = found.norms or event["norms"]
    found.numbered_gpu = any(
        what.startswith("cuda:") for event in rank.of("fake_cuda") for what in event["what"]
    )
    found.ahead = any(True for _ in rank.of("ahead"))
    found.loose = any(True for _ in rank.of("loose"))
    found.grad_of_weights = any(True for _ in rank.of("grad_of_weights"))
    found.uneven = [place(event["span"]) for event in rank.of("uneven_mean")]
    # For files that are made when missing, the processes wait already.
    made = {event["path"] for event in rank.of("made_file")}
    read = (event for event in rank.of("reads_own") if event["path"] not in made)
    found.rereads = list(dict.fromkeys(place(event["span"]) for event in read))
    for event in rank.of("made_file"):
        written = tuple(place(span) for span in event["written"])
        asked = tuple(tuple(place(span) for span in spans) for spans in event["asked"])
        found.made.append(Made(written, asked))
    for event in rank.of("acts"):
        found.acts.append([(what, place(span)) for what, span in event["acts"]])
    for event in rank.of("draws"):
        if event["late"] or event["fetching"]:
            rows = event["each"] or (event["batch"] in event["shape"] and event["batch"] > 1)
            found.draws.append(
                Draw(
                    span=place(event["span"]),
                    library=event["library"],
                    fetching=event["fetching"],
                    by_sample=(event["fetching"] and not event["in_stream"]) or rows,
                    in_stream=event["in_stream"],
                )
            )
    return found


def _loaders(rank: Rank, place: Place, found: Seen) -> None:
    """Find for each loader the call that makes loaders to train on, and no others."""
    made = list(_made(rank))
    trained = [pair for pair in made if any(one.trains for one in pair[1].passes)]
    others = [pair for pair in made if pair not in trained]
    for event, loader in trained:
        span, switch, mixed = _apart(event, trained, others)
        looks = mixed or any(one.evaluates for one in loader.passes)
        one = SeenLoader(span=place(span), direct=event["direct"], switch=switch, looks=looks)
        if one not in found.loaders:
            found.loaders.append(one)
    found.evaluated = [place(e["calls"][0]["span"]) for e, x in others if x.passes]


def _apart(event: Any, trained: list[Any], others: list[Any]) -> tuple[Any, str, bool]:
    """Return the innermost call that sets training loaders apart, or the call and a switch.

    Where there is neither, the third value is true.
    """
    first = event["calls"][0]
    for call in event["calls"]:
        same = [c for e, _ in others for c in e["calls"] if c["span"] == call["span"]]
        if not same:
            return call["span"], "", False
        alike = [c for e, _ in trained for c in e["calls"] if c["span"] == call["span"]]
        for name, value in call["values"].items():
            mine = {c["values"].get(name) for c in alike}
            theirs = {c["values"].get(name) for c in same}
            if mine == {value} and value not in theirs and call is first:
                if value in ("True", "False"):
                    return call["span"], name if value == "True" else f"not {name}", False
                return call["span"], f"{name} == {value}", False
    return first["span"], "", True


def _made(rank: Rank) -> Iterator[tuple[Any, Loader]]:
    """Yield each loader with the note of where it was made, which comes right before it."""
    known = {loader.number: loader for loader in rank.loaders}
    made: Any = None
    for event in rank.of("made_loader", "loader"):
        if event["kind"] == "made_loader":
            made = event
        elif made is not None:
            yield made, known[event["loader"]]
            made = None


Spot = tuple[Span, str]
"""A place, and the name of the tensor that is read there if the place is no call of its method."""
Read = dict[Spot, list[tuple[str, Any, int]]]
"""For each spot: how numbers were read there, which ones, and the rows of the batch before."""


def readouts(rank: Rank, place: Place) -> Read:
    """Return the numbers that a run read from tensors."""
    found: Read = defaultdict(list)
    for event in rank.of("read"):
        found[place(event["span"]), event["name"]].append(
            (event["how"], event["value"], event["rows"])
        )
    return found
