"""A process that cannot leave its group."""

from __future__ import annotations

import torch.distributed as dist

from lockstep.engine.group import disable_leaving
from replicas import on_replicas


def tries_to_leave(group) -> tuple[bool, bool]:
    disable_leaving()
    dist.destroy_process_group()
    before = dist.is_initialized()
    dist.barrier()
    return before, dist.is_initialized()


def test_a_group_cannot_be_left_once_leaving_is_disabled():
    assert on_replicas(2, tries_to_leave) == [(True, True), (True, True)]
    # Only in the processes that asked for it.
    assert dist.destroy_process_group.__doc__ != "Do nothing."
