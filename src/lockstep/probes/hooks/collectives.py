"""Record the collectives of each rank, in their order, and where it waits in one."""

from __future__ import annotations

import ctypes
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import distributed_c10d

from lockstep.probes.names import COLLECTIVES
from lockstep.probes.patching import replaces
from lockstep.probes.recorder import LEAVES, Recorder, place


def install(recorder: Recorder) -> None:
    """Watch all collectives and the process group."""
    if not dist.is_available():
        return
    inside = 0

    @replaces(COLLECTIVES, distributed_c10d, dist)
    def called(original: Any, *args: Any, **kwargs: Any) -> Any:
        nonlocal inside
        if inside or not dist.is_initialized():
            return original(*args, **kwargs)
        name, where = original.__name__, place(2)
        recorder.note(
            "collective",
            name=name,
            what=_described(_first(Tensor, args, kwargs)),
            group=dist.get_world_size(_first(dist.ProcessGroup, args, kwargs)),
            place=where,
            step=recorder.step,
        )
        recorder.flush()
        recorder.now(f"{name} at {where}")
        inside += 1
        try:
            return original(*args, **kwargs)
        finally:
            inside -= 1
            recorder.now(f"after {name} at {where}")

    @replaces("init_process_group", distributed_c10d, dist)
    def created(create: Any, *args: Any, **kwargs: Any) -> None:
        where = place(2)
        recorder.now(f"init_process_group at {where}")
        create(*args, **kwargs)
        _never_delete(dist.group.WORLD)
        recorder.is_rank(dist.get_rank())
        recorder.note(
            "group",
            rank=recorder.rank,
            size=dist.get_world_size(),
            backend=dist.get_backend(),
            place=where,
            threads=torch.get_num_threads(),
        )
        recorder.flush()
        recorder.now(f"after init_process_group at {where}")

    @replaces("destroy_process_group", distributed_c10d, dist)
    def destroyed(destroy: Any, *args: Any, **kwargs: Any) -> None:
        recorder.now(f"{LEAVES} at {place(2)}")
        recorder.flush()
        destroy(*args, **kwargs)


def _never_delete(group: object) -> None:
    """Keep a process group until the process exits.

    If a script destroys the group while a DDP model is alive, the model is the group's last owner.
    Deleting the model then waits for a thread of gloo, which waits for the interpreter: one exit
    in ten hung.
    """
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(group))


def _first(kind: type, args: Any, kwargs: Any) -> Any:
    return next((value for value in (*args, *kwargs.values()) if isinstance(value, kind)), None)


def _described(sent: Tensor | None) -> str:
    """Return the type and shape of a tensor."""
    return "" if sent is None else f"{str(sent.dtype).removeprefix('torch.')}{list(sent.shape)}"
