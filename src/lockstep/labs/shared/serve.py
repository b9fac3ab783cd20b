"""Serve a lab with marimo: offline, protected by a token, on loopback by default."""

from __future__ import annotations

import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import webbrowser
from collections.abc import Callable
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

from lockstep.errors import RunError, UsageError
from lockstep.labs.shared.catalogue import Lab
from lockstep.processes.fresh import Process, start_fresh
from lockstep.processes.ports import is_free
from lockstep.world import elsewhere

FIRST_PORT = 2718
IN_TERMINALS = ("www-browser", "links", "elinks", "lynx", "w3m")
"""Browsers that Python may choose on a machine without a screen. They cannot show a lab."""


def check_installed() -> None:
    """Raise an error that names the package to install, if the labs lack one."""
    for name in ("marimo", "anywidget", "torch", "plotly"):
        if find_spec(name) is None:
            raise UsageError(f"the labs need {name}. Install it with: pip install 'lockstep[lab]'")


def choose_port(host: str, asked: int | None) -> int:
    """Return the port that was asked for, or the first free one if none was."""
    for port in [asked] if asked is not None else range(FIRST_PORT, FIRST_PORT + 100):
        if is_free(host, port):
            return port
    if asked is None:
        raise RunError(f"no port from {FIRST_PORT} on is free on {host}. Name one with --port.")
    try:
        other = f" --port {choose_port(host, None)} is free."
    except RunError:
        other = ""
    raise UsageError(f"port {asked} is taken, or may not be used on {host}.{other}")


def opened(url: str) -> bool:
    """Open the address in a browser, and return whether that worked."""
    try:
        browser = webbrowser.get()
        return Path(getattr(browser, "name", "")).name not in IN_TERMINALS and browser.open(url)
    except webbrowser.Error:
        return False


def serve(lab: Lab, *, host: str, port: int | None, announce: Callable[[str], None]) -> int:
    """Serve a lab until Ctrl-C, pass its address to `announce`, and return marimo's exit code."""
    port = choose_port(host, port)
    token = secrets.token_urlsafe(16)
    shown = f"[{host}]" if ":" in host else host
    url = f"http://{shown}:{port}/?access_token={token}"
    with tempfile.TemporaryFile() as secret:
        secret.write(token.encode())
        secret.flush()
        secret.seek(0)
        process = start_fresh(
            [
                *("-m", "marimo", "--quiet", "run", str(lab.notebook)),
                *("--headless", "--host", host, "--port", str(port)),
                # On standard input: everyone on the machine can read a command line.
                *("--token", "--token-password-file", "-"),
            ],
            env=elsewhere(),
            stdin=secret,
            output=None,
        )
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    try:
        _wait(process, host, port)
        announce(url)
        return process.wait()
    except KeyboardInterrupt:
        return 0
    finally:
        if process.poll() is None:
            os.kill(process.pid, signal.SIGTERM)
        process.wait()


def _wait(process: Process, host: str, port: int) -> None:
    """Wait until marimo answers."""
    reach = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    while process.poll() is None:
        with suppress(OSError), socket.create_connection((reach, port), timeout=0.2):
            return
        with suppress(subprocess.TimeoutExpired):
            process.wait(0.1)
    raise RunError(f"marimo ended with exit code {process.poll()} before it served the lab.")
