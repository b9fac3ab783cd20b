"""lockstep in exact mode."""

from __future__ import annotations

from functools import partial

from lockstep.bench.side import Side
from lockstep.bench.sides.lockstep import run

SIDE = Side(
    name="lockstep-exact",
    sentence="lockstep, exact mode",
    run=partial(run, exact=True),
    order=2,
    shards=True,
)
