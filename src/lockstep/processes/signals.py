"""Signals: hold Ctrl-C back while processes are forked, and describe how a process ended."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

STOPS = (signal.SIGINT, signal.SIGTERM)


class DeferredSignals:
    """Deliver SIGINT and SIGTERM at the end of a `with` block instead of inside it.

    Python loses an exception that a signal handler raises inside the hooks of a fork. A signal
    that arrives between a fork and the line that notes the child would leave an orphan.
    """

    def __enter__(self) -> DeferredSignals:
        self._waiting: list[int] = []
        self._handlers = {n: signal.signal(n, self._keep) for n in STOPS}
        return self

    def __exit__(self, *error: object) -> None:
        self.release(self._handlers)

    def _keep(self, number: int, frame: object) -> None:
        self._waiting.append(number)

    def release(self, handlers: dict[signal.Signals, Any]) -> None:
        """Install these handlers and deliver the signals that have arrived."""
        for number, handler in handlers.items():
            signal.signal(number, handler)
        while self._waiting:
            signal.raise_signal(self._waiting.pop())


@contextmanager
def stop_as_interrupt() -> Iterator[None]:
    """Raise KeyboardInterrupt on SIGTERM too, so that `finally` blocks end child processes."""

    def stop(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    handlers = {n: signal.signal(n, stop) for n in STOPS}
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


def describe_exit(code: int) -> str:
    """Describe how a process ended that left no message, as a predicate.

    >>> describe_exit(3)
    'ended with exit code 3 and no message'
    >>> describe_exit(-9)
    'was killed by signal 9, SIGKILL (out of memory is the usual reason)'
    """
    if code >= 0:
        return f"ended with exit code {code} and no message"
    name = signal.Signals(-code).name
    hint = " (out of memory is the usual reason)" if name == "SIGKILL" else ""
    return f"was killed by signal {-code}, {name}{hint}"
