"""The task: the learning rate of a step, for a rate that grows with the replicas."""

from __future__ import annotations

from lockstep.labs.shared.task import Task, by

ASKS = """
Write `rate_at`: the learning rate of step number `step` (from 0).

- `base_rate` is good for **one** replica. With `world_size` replicas the global batch is as many
  times as large, and the rate shall be too: the linear rule.
- The rise is a straight line. Step 0 has the rate of one replica, step `warmup_steps` the first
  full one, and all later steps keep it.
- `warmup_steps` may be 0.
"""

STARTER = """
def rate_at(step, base_rate, world_size, warmup_steps):
    peak = ...
    if step >= warmup_steps:
        return peak
    return ...
""".lstrip()

ANSWER = """
def rate_at(step, base_rate, world_size, warmup_steps):
    peak = base_rate * world_size
    if step >= warmup_steps:
        return peak
    return base_rate + (peak - base_rate) * step / warmup_steps
""".lstrip()

EXPLAINS = """
The rise begins at `base_rate`, which is `peak / world_size`: the first step of many replicas moves
as far as one replica would. World size counts **all** replicas. Divided by the GPUs of one node,
the start would be too large by the number of nodes, just where a training is most fragile.
In lockstep: `warmed(constant, share, start=1 / world_size)`, or `--warmup 5 --warmup-start 0.125`.
"""

TASK = Task(
    name="rate_at",
    asks=ASKS,
    starter=STARTER,
    answer=ANSWER,
    explains=EXPLAINS,
    judge=by("lockstep.labs.lab3_scale.rate_check:check"),
)
