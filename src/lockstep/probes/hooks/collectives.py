"""Record the collectives of each rank, in their order, and where it waits in one."""

from __future__ import annotations

import ctypes
from functools import wraps
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import distributed_c10d

from lockstep.probes.names import COLLECTIVES
from lockstep.probes.recorder import LEAVES, Recorder, place


def install(recorder: Recorder) -> None:
    """Watch all collectives and the process group."""
    if not dist.is_available():
        return
    inside = 0

    def watched(name: str, original: Any) -> Any:
        @wraps(original)
        def called(*args: Any, **kwargs: Any) -> Any:
            nonlocal inside
            if inside or not dist.is_initialized():
                return original(*args, **kwargs)
            where = place(2)
            recorder.note(
                "collective",
                name=name,
                what=_what(args, kwargs),
                group=_size(args, kwargs),
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

        return called

    for name in COLLECTIVES:
        original = getattr(distributed_c10d, name, None)
        if original is not None:
            for owner in (distributed_c10d, dist):
                setattr(owner, name, watched(name, original))
    _watch_the_group(recorder)


def _watch_the_group(recorder: Recorder) -> None:
    create, destroy = dist.init_process_group, dist.destroy_process_group

    @wraps(create)
    def created(*args: Any, **kwargs: Any) -> None:
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

    @wraps(destroy)
    def destroyed(*args: Any, **kwargs: Any) -> None:
        recorder.now(f"{LEAVES} at {place(2)}")
        recorder.flush()
        destroy(*args, **kwargs)

    for owner in (distributed_c10d, dist):
        setattr(owner, "init_process_group", created)  # noqa: B010
        setattr(owner, "destroy_process_group", destroyed)  # noqa: B010


def _never_delete(group: object) -> None:
    """Keep a process group until the process exits.

    If a script destroys the group while a DDP model is alive, the model is the group's last owner.
    Deleting the model then waits for a thread of gloo, which waits for the interpreter: one exit
    in ten hung.
    """
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(group))


def _what(args: Any, kwargs: Any) -> str:
    """Return the type and shape of the tensor sent."""
    for value in [*args, *kwargs.values()]:
        if isinstance(value, Tensor):
            return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"
    return ""


def _size(args: Any, kwargs: Any) -> int:
    for value in [*args, *kwargs.values()]:
        if isinstance(value, dist.ProcessGroup):
            return value.size()
    return dist.get_world_size()
