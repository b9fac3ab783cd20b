import os
from contextlib import contextmanager

import torch.distributed as dist


@contextmanager
def local_leader_first():
    """The disk is local to a machine, so one process on each machine has to go first."""
    leader = int(os.environ["LOCAL_RANK"]) == 0
    if not leader:
        dist.barrier()
    yield leader
    if leader:
        dist.barrier()
