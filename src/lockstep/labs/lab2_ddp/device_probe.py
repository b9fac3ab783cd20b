"""A probe in every rank of a check, which records the GPU that a model is sent to."""

from __future__ import annotations

from functools import wraps
from typing import Any

import torch
from torch import nn

from lockstep.probes.recorder import Recorder


def install(recorder: Recorder) -> None:
    """Install the probe; the doctor's probes call this once torch is imported."""
    to, cuda = nn.Module.to, nn.Module.cuda

    def note(device: Any) -> None:
        if isinstance(device, int) and not isinstance(device, bool):
            device = torch.device("cuda", device)
        elif isinstance(device, str):
            device = torch.device(device)
        if isinstance(device, torch.device) and device.type == "cuda":
            number = device.index if device.index is not None else torch.cuda.current_device()
            recorder.note("placed", device=number)

    @wraps(to)
    def moved(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
        for device in (*args[:1], kwargs.get("device")):
            note(device)
        return to(self, *args, **kwargs)

    @wraps(cuda)
    def on_cuda(self: nn.Module, device: Any = None) -> Any:
        note("cuda" if device is None else device)
        return cuda(self, device)

    setattr(nn.Module, "to", moved)  # noqa: B010
    setattr(nn.Module, "cuda", on_cuda)  # noqa: B010
