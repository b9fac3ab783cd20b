"""Record while gradients carry the factor of a GradScaler, and the steps that it skips."""

from __future__ import annotations

from functools import wraps
from typing import Any

from torch.amp import GradScaler

from lockstep.probes.recorder import Recorder, Window


def install(recorder: Recorder) -> None:
    """Watch GradScaler."""
    methods: Any = (GradScaler.scale, GradScaler.unscale_, GradScaler.get_scale, GradScaler.step)
    scale, unscale, get, step = methods

    @wraps(scale)
    def scaled(self: Any, outputs: Any) -> Any:
        found = scale(self, outputs)
        if recorder.looks:
            recorder.window.scale = get(self)
        return found

    @wraps(unscale)
    def unscaled(self: Any, optimizer: Any) -> None:
        unscale(self, optimizer)
        recorder.window.scale = 1.0

    @wraps(get)
    def got(self: Any) -> Any:
        # A script that reads the scale may divide by it, or multiply its limit.
        recorder.window.scale = 1.0
        return get(self)

    @wraps(step)
    def stepped(self: Any, *args: Any, **kwargs: Any) -> Any:
        window = recorder.window
        found = step(self, *args, **kwargs)
        if recorder.window is window:
            # The gradients are not finite: the scaler skips the step and drops them.
            recorder.window = Window()
        return found

    for name, wrapped in (
        ("scale", scaled),
        ("unscale_", unscaled),
        ("get_scale", got),
        ("step", stepped),
    ):
        setattr(GradScaler, name, wrapped)
