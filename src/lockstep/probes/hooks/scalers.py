"""Record while gradients carry the factor of a GradScaler, and the steps that it skips."""

from __future__ import annotations

from typing import Any

from torch.amp import GradScaler

from lockstep.probes.patching import replaces
from lockstep.probes.recorder import Recorder, Window


def install(recorder: Recorder) -> None:
    """Watch GradScaler."""
    get_scale = GradScaler.get_scale

    @replaces("scale", GradScaler)
    def scaled(scale: Any, self: Any, outputs: Any) -> Any:
        found = scale(self, outputs)
        if recorder.looks:
            recorder.window.scale = get_scale(self)
        return found

    @replaces("unscale_", GradScaler)
    def unscaled(unscale: Any, self: Any, optimizer: Any) -> None:
        unscale(self, optimizer)
        recorder.window.scale = 1.0

    @replaces("get_scale", GradScaler)
    def got(get: Any, self: Any) -> Any:
        # A script that reads the scale may divide by it, or multiply its limit.
        recorder.window.scale = 1.0
        return get(self)

    @replaces("step", GradScaler)
    def stepped(step: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
        window = recorder.window
        found = step(self, *args, **kwargs)
        if recorder.window is window:
            # The gradients are not finite: the scaler skips the step and drops them.
            recorder.window = Window()
        return found
