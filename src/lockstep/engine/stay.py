"""Keeps a process in its group to its end: to leave while DDP is alive hangs now and then.

DDP's destructor then waits for a thread of gloo that waits for the interpreter. A process that was
forked to run somebody's script, and ends after it without any leave, loses nothing.
"""

from __future__ import annotations

from typing import Any

import torch.distributed as dist
from torch.distributed import distributed_c10d


def stay() -> None:
    """From now on `destroy_process_group` does nothing in this process."""

    def destroy_process_group(*_: Any, **__: Any) -> None:
        """Nothing."""

    for owner in (dist, distributed_c10d):
        setattr(owner, "destroy_process_group", destroy_process_group)  # noqa: B010
