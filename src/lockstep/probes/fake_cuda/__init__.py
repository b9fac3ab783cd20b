"""Run a script that asks for GPUs and NCCL on the CPU over gloo, as if the GPUs were there.

`torch.device("cuda:1")` stays what it is: a name. It is at the places of use that it becomes the
CPU, so a tensor there says `device(type="cpu")`, and `is_cuda` is False.
"""

from __future__ import annotations

from lockstep.probes.fake_cuda import cards, collectives, places
from lockstep.probes.fake_cuda.patching import Machine


def install(gpus: int) -> None:
    """Stand in for `gpus` GPUs from now on, in this process. A second call does nothing."""
    if gpus < 1:
        raise ValueError(f"Cannot stand in for {gpus} GPUs: at least 1.")
    if Machine.gpus:
        return
    Machine.gpus = gpus
    places.install()
    cards.install()
    collectives.install()


def touched() -> list[str]:
    """What was stood in for so far: "cuda", "nccl", "autocast float16 ran in float32" and so on."""
    return list(Machine.touched)
