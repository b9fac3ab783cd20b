"""Hold Ctrl-C and SIGTERM back while processes are forked."""

from __future__ import annotations

import signal
from typing import Any

STOPS = (signal.SIGINT, signal.SIGTERM)


class Held:
    """Signals that arrive in a `with` block of this are given when it ends.

    An exception that a handler raises is lost where Python runs the hooks of a fork, and one that
    comes before the child is noted leaves a child that nobody ends.
    """

    def __enter__(self) -> Held:
        self._waiting: list[int] = []
        self._handlers = {n: signal.signal(n, self._keep) for n in STOPS}
        return self

    def __exit__(self, *error: object) -> None:
        self.release(self._handlers)

    def _keep(self, number: int, frame: object) -> None:
        self._waiting.append(number)

    def release(self, handlers: dict[signal.Signals, Any]) -> None:
        """Take these handlers, as a child does first of all, and give them what has waited."""
        for number, handler in handlers.items():
            signal.signal(number, handler)
        while self._waiting:
            signal.raise_signal(self._waiting.pop())
