"""Cut a global batch into shards and parts: pure arithmetic, no processes."""

from __future__ import annotations

from dataclasses import dataclass

from lockstep.errors import PlanError

CHECK_EVERY = 256
"""Steps between two checks, on average: each costs one or two shards of one replica."""

MOST_COMPILED = 8
"""The most micro-batches whose batch norm is compiled one by one: torch.compile allows no more."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Which replica computes which part of a global batch."""

    global_batch: int
    """Samples per optimizer step, over all replicas."""
    shards: int
    """Slices of the global batch."""
    replicas: int
    """Processes that share the shards."""
    shards_per_micro: int
    """Shards that go through the model together."""

    @property
    def shard_size(self) -> int:
        """Samples in a shard of a full batch."""
        return self.global_batch // self.shards

    @property
    def shards_per_replica(self) -> int:
        """How many shards one replica computes."""
        return self.shards // self.replicas

    @property
    def micro_batch(self) -> int:
        """Samples of a full batch that go through the model together."""
        return self.shard_size * self.shards_per_micro

    @property
    def accumulation(self) -> int:
        """How many forward and backward passes a replica makes per optimizer step."""
        return self.shards_per_replica // self.shards_per_micro

    def parts(self, rank: int) -> list[range]:
        """Return the shards of each forward pass of replica `rank`, in order."""
        first = rank * self.shards_per_replica
        last = first + self.shards_per_replica
        return [
            range(s, s + self.shards_per_micro) for s in range(first, last, self.shards_per_micro)
        ]


def make_plan(
    *,
    global_batch: int,
    shards: int,
    replicas: int = 1,
    micro_batch: int | None = None,
    exact: bool = False,
) -> Plan:
    """Fit batch, shards and replicas together, or raise an error that names values which fit.

    >>> plan = make_plan(global_batch=512, shards=8, replicas=2, micro_batch=128)
    >>> plan.shard_size, plan.shards_per_replica, plan.accumulation
    (64, 4, 2)
    """
    if shards < 1 or shards & (shards - 1):
        near = _nearest(shards, _powers(2 * max(1, shards)))
        raise PlanError(f"--shards {shards} is not a power of two. {near}")
    if global_batch < 1 or global_batch % shards:
        low = max(0, global_batch) // shards * shards
        raise PlanError(
            f"--global-batch {global_batch} does not cut into {shards} equal shards. "
            f"{_nearest(global_batch, [low, low + shards])}{_fewer(global_batch, shards)}"
        )
    if replicas < 1 or shards % replicas:
        message = (
            f"--replicas {replicas} do not fit {shards} shards: each replica computes the same "
            f"number of whole shards. {_nearest(replicas, _powers(shards))}"
        )
        if replicas > shards and replicas == _powers(replicas)[-1] and not global_batch % replicas:
            message += f" Or ask for --shards {replicas}, which is another recipe."
        raise PlanError(message)
    size, own = global_batch // shards, shards // replicas
    if exact:
        if micro_batch not in (None, size):
            raise PlanError(
                f"--micro-batch {micro_batch} does not work with --exact, which computes shard by "
                f"shard: here {size} samples. Leave it out, or change --shards."
            )
        together = 1
    elif micro_batch is None:
        together = own
    else:
        fits = [size * n for n in _powers(own)]
        if micro_batch not in fits:
            raise PlanError(
                f"--micro-batch {micro_batch} is not a whole number of shards (of {size} samples) "
                f"that divides the {own} of a replica. {_nearest(micro_batch, fits)}"
            )
        together = micro_batch // size
    return Plan(
        global_batch=global_batch, shards=shards, replicas=replicas, shards_per_micro=together
    )


def cut(count: int, parts: int) -> list[int]:
    """Cut `count` samples into `parts` nearly equal slices: slice i is [i] to [i + 1].

    >>> cut(10, 4)
    [0, 2, 5, 7, 10]
    """
    return [count * part // parts for part in range(parts + 1)]


def _powers(limit: int) -> list[int]:
    return [1 << n for n in range(max(limit, 1).bit_length()) if 1 << n <= limit]


def _fewer(global_batch: int, shards: int) -> str:
    """Name the most shards that this batch can be cut into, if there are any.

    >>> _fewer(10, 4)
    ' Or keep the batch and use --shards 2.'
    """
    fits = [n for n in _powers(shards) if n > 0 and global_batch > 0 and global_batch % n == 0]
    return f" Or keep the batch and use --shards {max(fits)}." if fits else ""


def _nearest(given: int, fits: list[int]) -> str:
    """Name the closest working values below and above the given one."""
    below = [n for n in fits if 0 < n < given]
    above = [n for n in fits if n > max(0, given)]
    near = [str(n) for n in (below[-1:] + above[:1])]
    return f"Nearest that {'do' if len(near) > 1 else 'does'}: {', '.join(near)}."
