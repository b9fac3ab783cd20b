"""The sides: who takes part, each in a file of its own, written as its users would write it."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING

from lockstep.errors import UsageError

if TYPE_CHECKING:
    from lockstep.bench.assignment import Task


@dataclass(frozen=True, kw_only=True)
class Side:
    """One way to do a work."""

    name: str
    sentence: str
    """What it is, for the table and the error messages."""
    file: str
    """The module beside this one; imported in the side's own process, for its library may fail."""
    function: str = "run"
    needs: tuple[str, ...] = ()
    """Packages of which one must be installed."""
    one_replica: bool = False
    """Whether it cannot use more than one."""
    only_fp32: bool = False
    """Whether it stays in fp32, whatever --precision says."""
    on_cpu: bool = True
    """Whether it takes part on the CPU without being named."""
    shards: bool = False
    """Whether the number of replicas must be a power of two."""

    @property
    def installed(self) -> bool:
        """Whether its library is there."""
        return not self.needs or any(find_spec(name) for name in self.needs)

    def run(self, task: Task) -> None:
        """Train until the task's pace ends it."""
        module = importlib.import_module(f"lockstep.bench.sides.{self.file}")
        getattr(module, self.function)(task)


_ALL = (
    Side(name="lockstep", sentence="lockstep, fast mode", file="lockstep", shards=True),
    Side(
        name="lockstep-exact",
        sentence="lockstep, exact mode",
        file="lockstep",
        function="run_exact",
        shards=True,
    ),
    Side(
        name="handwritten",
        sentence="a hand-written DDP loop, fp32",
        file="handwritten",
        only_fp32=True,
    ),
    Side(
        name="accelerate",
        sentence="Hugging Face Accelerate",
        file="accelerate",
        needs=("accelerate",),
    ),
    Side(
        name="fabric",
        sentence="Lightning Fabric",
        file="fabric",
        needs=("lightning", "lightning_fabric"),
    ),
    Side(
        name="trainer",
        sentence="Lightning Trainer",
        file="trainer",
        needs=("lightning", "pytorch_lightning"),
    ),
    Side(
        name="workshop",
        sentence="the loop of a first course: one device, fp32, a DataLoader without workers",
        file="workshop",
        one_replica=True,
        only_fp32=True,
    ),
    Side(
        name="tuned",
        sentence="what an expert writes by hand for one GPU",
        file="tuned",
        one_replica=True,
        on_cpu=False,
    ),
)
SIDES = {side.name: side for side in _ALL}


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A side on a number of replicas."""

    name: str
    """As it was asked for: `lockstep`, or `lockstep@1` for another number of replicas."""
    side: Side
    replicas: int


def default_entries(replicas: int, device: str) -> tuple[list[Entry], list[str]]:
    """All sides that are installed and fit; and the names of those that are not installed."""
    fit = [s for s in _ALL if replicas == 1 or not s.one_replica]
    fit = [s for s in fit if device == "cuda" or s.on_cpu]
    entries = [Entry(name=s.name, side=s, replicas=replicas) for s in fit if s.installed]
    return entries, [s.name for s in fit if not s.installed]


def parse_entries(text: str, replicas: int) -> list[Entry]:
    """The sides that `--sides` names, separated by commas.

    >>> [(e.side.name, e.replicas) for e in parse_entries("lockstep,lockstep@1", 2)]
    [('lockstep', 2), ('lockstep', 1)]
    """
    names = [name.strip() for name in text.split(",")]
    if len(set(names)) < len(names):
        raise UsageError(f"--sides {text}: name each side once.")
    return [_entry(name, replicas) for name in names]


def _entry(name: str, replicas: int) -> Entry:
    plain, at, number = name.partition("@")
    if plain not in SIDES:
        raise UsageError(f"--sides: there is no side {plain!r}. Known: {', '.join(SIDES)}.")
    if at and not (number.isdigit() and int(number)):
        raise UsageError(f"--sides {name}: after @ comes a number of replicas, as in {plain}@1.")
    side = SIDES[plain]
    replicas = int(number) if at else replicas
    if not side.installed:
        raise UsageError(
            f"--sides {name}: {side.needs[0]} is not installed. "
            "Install it with: pip install 'lockstep[bench]'"
        )
    if side.one_replica and replicas > 1:
        raise UsageError(f"--sides {name}: {plain} uses one replica. Write {plain}@1.")
    return Entry(name=name, side=side, replicas=replicas)


def check_replicas(entries: list[Entry]) -> None:
    """Refuse a number of replicas that lockstep cannot cut a batch for."""
    for entry in entries:
        n = entry.replicas
        if entry.side.shards and n & (n - 1):
            low = 1 << (n.bit_length() - 1)
            raise UsageError(
                f"{entry.name} on {n} replicas: lockstep cuts a batch into a power of two. "
                f"Use {low} or {2 * low}."
            )
