"""Numbers that loss functions return to be logged, added up over shards and replicas."""

from __future__ import annotations

from typing import Any

from lockstep.engine.group import Group

Rows = dict[str, list[list[float]]]
"""For each name, the sum and the count of every shard."""


class Notes:
    """Numbers that loss functions return to be logged, as a sum and a count for each shard."""

    def __init__(self, shards: int, own: range) -> None:
        self.shards, self.own = shards, own
        self.sums: dict[str, list[list[Any]]] = {}

    def add(self, shard: int, notes: dict[str, tuple[Any, Any]]) -> None:
        """Add the numbers of one piece; they stay on the device."""
        for name, (total, count) in notes.items():
            row = self.sums.setdefault(name, [[0.0, 0.0] for _ in range(self.shards)])[shard]
            row[0] = row[0] + total
            row[1] = row[1] + count

    def rows(self, group: Group) -> Rows:
        """Return the sums of all replicas; all call this together."""
        own = {n: [[float(v) for v in row] for row in rows] for n, rows in self.sums.items()}
        found: Rows = {}
        for one in group.objects(own, "log"):
            for name, rows in one.items():
                kept = found.setdefault(name, [[0.0, 0.0] for _ in range(self.shards)])
                # Each shard is on one replica: the others add zeros.
                for row, (total, count) in zip(kept, rows, strict=True):
                    row[0], row[1] = row[0] + total, row[1] + count
        return found

    def load(self, rows: Rows) -> None:
        """Continue from saved sums: a replica takes over those of its own shards."""
        self.sums = {
            name: [row if n in self.own else [0.0, 0.0] for n, row in enumerate(every)]
            for name, every in rows.items()
        }

    def means(self, group: Group) -> dict[str, float]:
        """Return the mean of each number over all replicas, and forget the sums."""
        rows = self.rows(group)
        self.sums = {}
        means = {}
        for name, every in rows.items():
            total, count = (sum(column) for column in zip(*every, strict=True))
            means[name] = total / count if count else float("nan")
        return means
