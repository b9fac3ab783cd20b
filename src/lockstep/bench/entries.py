"""Which sides take part in a bench, and on how many replicas. Sides are found in `sides/`."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from pkgutil import iter_modules

from lockstep.bench import sides
from lockstep.bench.side import Side
from lockstep.errors import UsageError

_FOUND = (import_module(f"{sides.__name__}.{m.name}").SIDE for m in iter_modules(sides.__path__))
SIDES: dict[str, Side] = {s.name: s for s in sorted(_FOUND, key=lambda side: side.order)}


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A side on a number of replicas."""

    name: str
    """As the user typed it: `lockstep`, or `lockstep@1` for a different number of replicas."""
    side: Side
    replicas: int


def default_entries(replicas: int, device: str) -> tuple[list[Entry], list[str]]:
    """Return the installed sides that can run here, and the names of those not installed."""
    fit = [s for s in SIDES.values() if replicas == 1 or not s.one_replica]
    fit = [s for s in fit if device == "cuda" or s.on_cpu]
    entries = [Entry(name=s.name, side=s, replicas=replicas) for s in fit if s.installed]
    return entries, [s.name for s in fit if not s.installed]


def parse_entries(text: str, replicas: int) -> list[Entry]:
    """Return the sides that `--sides` names, separated by commas.

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
        raise UsageError(f"--sides {name}: write a number of replicas after @, as in {plain}@1.")
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
