"""Run a script that asks for GPUs and NCCL on the CPU over gloo, as if the GPUs were there.

`torch.device("cuda:1")` stays a device of CUDA. Functions that take it use the CPU, so a tensor
says `device(type="cpu")`, and its `is_cuda` is False.
"""

from __future__ import annotations

from lockstep.probes.fake_cuda import collectives, cuda_api, devices
from lockstep.probes.fake_cuda.patching import Machine
from lockstep.world import launched

_ANY = 16
"""A script in one process may name any of these GPUs."""


def install(gpus: int) -> None:
    """Let the CPU answer for `gpus` GPUs in this process. A second call does nothing."""
    if gpus < 1:
        raise ValueError(f"The CPU cannot answer for {gpus} GPUs. Give 1 or more.")
    if Machine.gpus:
        return
    Machine.gpus = gpus
    Machine.least = _ANY if launched() is None else 0
    devices.install()
    cuda_api.install()
    collectives.install()


def answered() -> list[str]:
    """Return what the CPU has answered for: "cuda", "nccl", "autocast float16 ran in float32"."""
    return list(Machine.answered)
