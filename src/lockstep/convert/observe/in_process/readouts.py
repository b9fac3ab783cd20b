"""Note the numbers that a script reads from tensors, and where."""

from __future__ import annotations

import sys
from collections import Counter
from functools import wraps
from typing import Any

from torch import Tensor

from lockstep.probes.recorder import Batch, Recorder, is_ours, kind_of
from lockstep.probes.spans import Span, span_of

READ = 48
"""How many numbers to note from one place."""
LONGEST = 2048
"""How many elements a tensor may have whose numbers are noted."""


class Readouts:
    """The numbers that the script reads from tensors, and where."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self.times: Counter[tuple[Span, str]] = Counter()
        self.rows = 0
        """Samples of the last batch that this process has."""
        recorder.on_batch.append(self._batch)
        for name in ("item", "tolist", "numpy", "__float__", "__int__", "__bool__", "__repr__"):
            setattr(Tensor, name, self._watched(name, getattr(Tensor, name)))
        for name in ("__lt__", "__le__", "__gt__", "__ge__"):
            setattr(Tensor, name, self._compared(getattr(Tensor, name)))

    def _batch(self, data: Any, batch: Batch) -> Any:
        self.rows = batch.size
        return data

    def _watched(self, name: str, original: Any) -> Any:
        @wraps(original)
        def read(tensor: Any, *args: Any, **kwargs: Any) -> Any:
            found = original(tensor, *args, **kwargs)
            if not self.recorder.worker:
                self._read(name, tensor, found)
            return found

        return read

    def _compared(self, original: Any) -> Any:
        @wraps(original)
        def compared(tensor: Any, other: Any) -> Any:
            if tensor.numel() == 1 and not self.recorder.worker:
                self._read("compare", tensor, None)
            return original(tensor, other)

        return compared

    def _read(self, how: str, tensor: Tensor, found: Any) -> None:
        frame: Any = sys._getframe(2)
        while is_ours(frame.f_code.co_filename):
            frame = frame.f_back
        if frame.f_code.co_filename.endswith("/torch/_tensor.py"):
            frame = frame.f_back
        if kind_of(frame.f_code.co_filename) != "script" or tensor.is_complex():
            return
        if tensor.numel() > LONGEST or (how == "__repr__" and tensor.numel() != 1):
            return
        name = "" if how in ("item", "tolist", "numpy") else _name_of(tensor, frame)
        span = span_of(frame)
        self.times[span, name] += 1
        if self.times[span, name] > READ:
            return
        whole = found if how in ("item", "tolist") else tensor.detach().tolist()
        self.recorder.note(
            "read", span=span, how=how, name=name, shape=list(tensor.shape), value=whole,
            step=self.recorder.step, rows=self.rows,
        )  # fmt: skip


def _name_of(tensor: Tensor, frame: Any) -> str:
    """Return the variable, attribute or entry of a frame that holds a tensor; "" if none does."""
    here = tensor.data_ptr(), tensor.numel()

    def is_it(value: Any) -> bool:
        return isinstance(value, Tensor) and (value.data_ptr(), value.numel()) == here

    places = [frame.f_locals]
    if frame.f_globals is not frame.f_locals:
        places.append(frame.f_globals)
    for names in places:
        for name, value in list(names.items()):
            if is_it(value):
                return str(name)
    for names in places:
        for name, value in list(names.items()):
            if isinstance(value, dict) and len(value) < 100 and not name.startswith("__"):
                for key, one in value.items():
                    if is_it(one) and isinstance(key, str):
                        return f"{name}[{key!r}]"
            elif name == "self" and hasattr(value, "__dict__"):
                for key, one in vars(value).items():
                    if is_it(one):
                        return f"{name}.{key}"
    return ""
