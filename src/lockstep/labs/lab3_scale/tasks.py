"""The task of lab 3: the learning rate of a step when the rate grows with the replicas."""

from __future__ import annotations

from lockstep.labs.shared.task import Task, by

RATE_AT = Task(
    name="rate_at",
    asks="""### Task: the rate of a step

Write `rate_at`: the learning rate of step number `step` (from 0).

- `base_rate` is good for **one** replica. With `world_size` replicas the global batch is
  `world_size` times as large, and so is the rate: this is the linear rule.
- The rate rises in a straight line. Step 0 has the rate of one replica, step `warmup_steps` is the
  first with the full rate, and all later steps keep it.
- `warmup_steps` may be 0.
""",
    starter="""def rate_at(step, base_rate, world_size, warmup_steps):
    peak = ...
    if step >= warmup_steps:
        return peak
    return ...
""",
    answer="""def rate_at(step, base_rate, world_size, warmup_steps):
    peak = base_rate * world_size
    if step >= warmup_steps:
        return peak
    return base_rate + (peak - base_rate) * step / warmup_steps
""",
    explains="""The rise begins at `base_rate`, which is `peak / world_size`: the first step of many
replicas moves as far as that of one replica. The world size counts **all** replicas. If you divided
by the GPUs of one node, the start would be too high by the number of nodes, exactly where training
is most fragile. In lockstep, write `warmed(constant, share, start=1 / world_size)` or
`--warmup 5 --warmup-start 0.125`.
""",
    judge=by("lockstep.labs.lab3_scale.rate_check:check"),
)
