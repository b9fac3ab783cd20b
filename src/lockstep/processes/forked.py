"""Start programs as forks of a process that has imported torch: a tenth of a second instead of two.

The first program that asks starts the server, and others share it. A program gets another server
if its environment differs in something that Python or torch reads when it is loaded.
"""

from __future__ import annotations

import atexit
import json
import os
import select
import socket
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from weakref import WeakSet

from lockstep import world
from lockstep.errors import RunError
from lockstep.processes.fork import end_group
from lockstep.processes.fresh import File
from lockstep.processes.server import NUMBER

TORCH = ("torch", "torch.distributed", "torch.nn.parallel.distributed", "torch.utils.data", "numpy")
"""What every server imports."""
LOST = -9
"""The exit code of a program whose server has died, and took the program with it."""


class Forked:
    """A program that the server has forked. It leads a process group."""

    def __init__(self, pid: int, status: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._status = status

    def poll(self) -> int | None:
        """Return the exit code, negative if a signal killed it; None while it runs."""
        return self._read(0.0)

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end and return the exit code; raise subprocess.TimeoutExpired."""
        code = self._read(timeout)
        if code is None:
            raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0.0)
        return code

    def _read(self, timeout: float | None) -> int | None:
        if self.returncode is None:
            ready = select.poll()
            ready.register(self._status, select.POLLIN)
            if ready.poll(None if timeout is None else 1e3 * timeout):
                content = os.read(self._status, NUMBER.size)
                self.returncode = NUMBER.unpack(content)[0] if content else LOST
                os.close(self._status)
        return self.returncode


@dataclass
class _Server:
    """The client's end of one server."""

    process: subprocess.Popen[bytes]
    control: socket.socket
    loaded: frozenset[str]
    """Top-level modules that its programs find already imported."""
    alone: bool
    """Whether it runs one thread only, so that it may fork."""
    owner: int = field(default_factory=os.getpid)
    """The process that started it: a fork of that process must not talk on its socket."""

    programs: WeakSet[Forked] = field(default_factory=WeakSet)
    """Programs that it has forked, and that somebody still follows."""

    @property
    def idle(self) -> bool:
        """Whether none of its programs runs."""
        return all(program.poll() is not None for program in list(self.programs))

    @property
    def usable(self) -> bool:
        return self.owner == os.getpid() and self.process.poll() is None

    def close(self) -> None:
        self.control.close()
        if self.owner == os.getpid():
            end_group(self.process.pid)
            self.process.wait()


_servers: dict[tuple[tuple[str, str], ...], _Server] = {}
_lock = Lock()
MOST_SERVERS = 2
"""Servers kept at a time, unless more are busy: each holds torch in memory."""


def start_forked(
    command: Sequence[str],
    *,
    env: dict[str, str],
    stdin: File = subprocess.DEVNULL,
    output: File,
    cwd: Path | str | None = None,
    keep: Sequence[int] = (),
    hook: str = "",
    preload: Sequence[str] = (),
) -> Forked:
    """Start `python *command` as a fork of a process that has imported torch.

    A server that has to be started first imports `preload` too, which programs then find loaded.
    `hook` names a function, as `module:function`, that the program's process calls first. The
    other arguments are those of `start_fresh`. The program dies with this process.
    """
    request = {
        "command": [str(part) for part in command],
        "env": env,
        "cwd": str(cwd or os.getcwd()),
        "keep": list(keep),
        "hook": hook,
    }
    reading, writing = os.pipe()
    with tempfile.TemporaryFile("w+") as body, open(os.devnull) as nothing:
        json.dump(request, body)
        body.flush()
        body.seek(0)
        source = nothing if stdin == subprocess.DEVNULL else stdin
        out = _number(output)
        files = [body.fileno(), writing, _number(source), out, out, *keep]
        try:
            with _lock:
                program = _ask(env, preload, files, reading)
        except BaseException:
            os.close(reading)
            raise
        finally:
            os.close(writing)
    return program


def obstacle(env: dict[str, str], preload: Sequence[str], names: frozenset[str]) -> str | None:
    """Return why the server cannot fork a program with modules of these names beside it."""
    with _lock:
        server = _server(env, preload)
    if not server.alone:
        return "importing torch starts threads here"
    hidden = sorted(names & server.loaded)
    return f"{hidden[0]}.py beside the script has the name of another module" if hidden else None


def close_servers() -> None:
    """End all servers of this process, with the programs that they have forked."""
    with _lock:
        while _servers:
            _servers.popitem()[1].close()
    atexit.unregister(close_servers)


def server_ids() -> set[int]:
    """Return the process ids of the servers that live now."""
    return {server.process.pid for server in _servers.values() if server.usable}


def _ask(env: dict[str, str], preload: Sequence[str], files: Sequence[int], status: int) -> Forked:
    """Have a server fork a program, whose exit status arrives through the pipe `status`."""
    for _ in range(2):
        server = _server(env, preload)
        try:
            socket.send_fds(server.control, [b"1"], files)
            program = Forked(NUMBER.unpack(_receive(server.control, NUMBER.size))[0], status)
            server.programs.add(program)
            return program
        except (OSError, EOFError):
            # A program may have killed the server, which is its parent. Start another one.
            server.close()
        except BaseException:
            # The answer would be taken for that to the next request.
            server.close()
            raise
    raise RunError("The program killed the process that had started it.")


def _server(env: dict[str, str], preload: Sequence[str]) -> _Server:
    key = tuple(sorted(world.read_at_import(env).items()))
    found = _servers.pop(key, None)
    if found is not None and not found.usable:
        found.close()
        found = None
    for old, server in list(_servers.items()):
        if found is None and len(_servers) >= MOST_SERVERS and server.idle:
            _servers.pop(old).close()
    if found is None:
        atexit.register(close_servers)
        found = _start(world.without_rank(env), [*TORCH, *preload])
    _servers[key] = found
    return _servers[key]


def _start(env: dict[str, str], modules: Sequence[str]) -> _Server:
    ours, theirs = socket.socketpair()
    with theirs, tempfile.TemporaryFile() as errors:
        number = theirs.fileno()
        process = subprocess.Popen(
            [sys.executable, "-m", "lockstep.processes.server", str(number), *modules],
            env=env,
            # Not the user's folder: modules there would come before those that torch imports.
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            pass_fds=(number,),
            start_new_session=True,
        )
        theirs.close()
        try:
            (size,) = NUMBER.unpack(_receive(ours, NUMBER.size))
            loaded = json.loads(_receive(ours, size))
        except EOFError:
            ours.close()
            process.wait()
            errors.seek(0)
            said = errors.read().decode(errors="replace").strip()
            raise RunError(f"torch cannot be imported:\n{said}") from None
    return _Server(process, ours, frozenset(loaded["modules"]), loaded["threads"] == 1)


def _receive(connection: socket.socket, size: int) -> bytes:
    content = b""
    while len(content) < size:
        part = connection.recv(size - len(content))
        if not part:
            raise EOFError
        content += part
    return content


def _number(file: File) -> int:
    return file if isinstance(file, int) else file.fileno()
