"""Compute everything in float64, where rounding has no time to grow; installed first."""

from __future__ import annotations

import io
from functools import wraps
from typing import Any

import torch
from torch import Tensor, nn

from lockstep.probes.recorder import Recorder

SINGLE = torch.float32


def install(recorder: Recorder) -> None:
    """Make float64 the default. The probes call this once torch is imported."""
    # Torch caches its types for reading files on first use: fill the cache before the change.
    buffer = io.BytesIO()
    torch.save(torch.zeros(1), buffer)
    torch.load(io.BytesIO(buffer.getvalue()))
    torch.set_default_dtype(torch.float64)
    for name in ("from_numpy", "tensor", "as_tensor"):
        setattr(torch, name, _double(getattr(torch, name)))
    for owner, name, new in (
        (torch, "float32", torch.float64),
        (torch, "float", torch.float64),
        (torch, "FloatTensor", torch.DoubleTensor),
        (torch.cuda, "FloatTensor", torch.DoubleTensor),
        (Tensor, "float", Tensor.double),
        (nn.Module, "float", nn.Module.double),
    ):
        setattr(owner, name, new)
    create: Any = torch.amp.GradScaler.__init__

    @wraps(create)
    def created(self: Any, *args: Any, **kwargs: Any) -> None:
        # It would scale in float32, and float64 needs no scale.
        create(self, *args, **kwargs)
        self._enabled = False

    setattr(torch.amp.GradScaler, "__init__", created)  # noqa: B010
    recorder.note("neutralised", what="a second comparison computes in float64")


def _double(original: Any) -> Any:
    @wraps(original)
    def made(*args: Any, **kwargs: Any) -> Tensor:
        found: Tensor = original(*args, **kwargs)
        return found.double() if found.dtype == SINGLE else found

    return made
