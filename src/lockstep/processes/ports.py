"""Find free ports on this machine."""

from __future__ import annotations

import random
import socket

OURS = range(20_000, 32_000)
"""Ports below those that Linux gives to programs that ask for any: it would soon give ours away."""


def free_port(host: str = "127.0.0.1") -> int:
    """Return a port on which nobody listens now."""
    # Not from Python's own generator, which a program may have seeded.
    for port in random.SystemRandom().sample(OURS, 64):
        if is_free(host, port):
            return port
    with _listener(host, 0) as listener:
        return int(listener.getsockname()[1])


def is_free(host: str, port: int) -> bool:
    """Return whether this process could listen on the port."""
    try:
        _listener(host, port).close()
    except OSError:
        return False
    return True


def _listener(host: str, port: int) -> socket.socket:
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
    except OSError:
        listener.close()
        raise
    return listener
