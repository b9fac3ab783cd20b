"""Note Ctrl-C and SIGTERM, so that all replicas can stop after the same step."""

from __future__ import annotations

import signal
from collections.abc import Callable
from types import FrameType
from typing import Any

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class StopRequest:
    """Whether this process should stop. The replicas agree on it at a control point."""

    def __init__(self) -> None:
        self.asked = False
        self._handlers: dict[int, Callable[[int, FrameType | None], Any] | int | None] = {}

    def listen(self) -> None:
        """Note signals from now on, instead of ending at once."""
        for number in _SIGNALS:
            self._handlers[number] = signal.signal(number, self._note)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.asked = True

    def ignore(self, *, finished: bool) -> None:
        """Restore the handlers from before.

        After a run that has `finished`, a signal would find nothing left to stop: ignore it where
        it would end the process.
        """
        for number, handler in self._handlers.items():
            over = finished and handler == signal.SIG_DFL
            signal.signal(number, signal.SIG_IGN if over else handler)
