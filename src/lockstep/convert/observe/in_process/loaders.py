"""Note where a script makes its DataLoaders, from the innermost call to the outermost."""

from __future__ import annotations

import sys
from typing import Any

import torch

from lockstep.probes.recorder import Batch, LoaderPass, Recorder, is_ours, kind_of
from lockstep.probes.spans import script_frame, self_of, span_of

DEEPEST = 6
"""How many calls around a DataLoader to note."""


class Loaders:
    """Where each DataLoader is made, from the innermost call to the outermost."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self.waiting: dict[str, int] = {}
        """Batches that each pass under way has given since the last backward."""
        recorder.on_loader.append(self._made)
        recorder.on_batch.append(self._gave)
        recorder.on_pass.append(lambda _, state: self._ended(state))
        recorder.on_pass_end.append(self._ended)
        recorder.on_backward.append(self._learns)

    def _made(self, loader: Any) -> None:
        frame = script_frame(made=loader)
        if frame is None or self.recorder.worker:
            return
        # A library's function may make it: then the expression gives something else.
        direct = _is_direct(frame, loader)
        calls: list[dict[str, Any]] = []
        while frame is not None and len(calls) < DEEPEST:
            if kind_of(frame.f_code.co_filename) == "script":
                calls.append({"span": span_of(frame), "values": _plain_values(frame)})
            frame = frame.f_back
        self.recorder.note("made_loader", calls=calls, direct=direct)

    def _ended(self, state: LoaderPass) -> None:
        self.waiting.pop(state.loader, None)

    def _gave(self, data: Any, batch: Batch) -> Any:
        if torch.is_grad_enabled():
            self.waiting[batch.loader] = self.waiting.get(batch.loader, 0) + 1
        return data

    def _learns(self) -> None:
        if sum(self.waiting.values()) > 1:
            self.recorder.note("ahead")
        self.waiting.clear()


def _plain_values(frame: Any) -> dict[str, str]:
    """Return the variables of a function that are switches or words."""
    if frame.f_code.co_name == "<module>":
        return {}
    return {
        name: repr(value)
        for name, value in frame.f_locals.items()
        if isinstance(value, bool | str) and len(str(value)) < 40
    }


def _is_direct(frame: Any, loader: Any) -> bool:
    """Return whether only torch lies between a line of the script and the loader's __init__."""
    below: Any = sys._getframe(2)
    while below is not None and below is not frame:
        module = below.f_globals.get("__name__", "")
        ours = is_ours(below.f_code.co_filename)
        if not (ours or module.startswith("torch.utils.data")) and self_of(below) is not loader:
            return False
        below = below.f_back
    return True
