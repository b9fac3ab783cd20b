"""A process that stays in its group."""

from __future__ import annotations

import torch.distributed as dist

from lockstep.engine.stay import stay
from replicas import on_replicas


def stayed(group) -> tuple[bool, bool]:
    stay()
    dist.destroy_process_group()
    before = dist.is_initialized()
    dist.barrier()
    return before, dist.is_initialized()


def test_a_group_that_is_left_after_stay_is_still_there():
    assert on_replicas(2, stayed) == [(True, True), (True, True)]
    # Only in the processes that asked for it.
    assert dist.destroy_process_group.__doc__ != "Nothing."
