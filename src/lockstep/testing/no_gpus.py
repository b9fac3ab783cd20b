"""Hide GPUs from a script whose framework asks the machine for its devices."""

from __future__ import annotations

import torch

from lockstep.probes.recorder import Recorder


def install(recorder: Recorder) -> None:
    """Let torch find no GPU. The probes call this once torch is imported."""
    for name, answer in (("is_available", False), ("device_count", 0)):
        setattr(torch.cuda, name, lambda answer=answer: answer)
