"""Note each printed line, and whether an evaluation came before it."""

from __future__ import annotations

import sys
from typing import Any

import torch
from torch.nn.modules.module import register_module_forward_pre_hook

from lockstep.convert.verify.in_process.training_state import Now


def install(now: Now) -> None:
    """Listen to standard output."""
    sys.stdout = Heard(sys.stdout, now)

    def forward(*_: Any) -> None:
        now.evaluated = now.evaluated or not torch.is_grad_enabled()

    # Not every evaluation goes through a loader.
    register_module_forward_pre_hook(forward)


class Heard:
    """A stream that notes the lines written to it."""

    def __init__(self, stream: Any, now: Now) -> None:
        self._stream, self._now, self._line = stream, now, ""

    def write(self, text: str) -> int:
        """Note the lines, and pass the text on."""
        if not self._now.recorder.worker:
            *lines, self._line = (self._line + text).split("\n")
            for line in lines:
                # Text that is overwritten is a progress bar, which shows this process only.
                _, bar, shown = line.rpartition("\r")
                now = self._now
                now.recorder.note(
                    "line",
                    text=shown[:1000],
                    step=now.most_steps,
                    evaluated=now.evaluated and not bar,
                )
        return int(self._stream.write(text) or 0)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
