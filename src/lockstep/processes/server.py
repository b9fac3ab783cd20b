"""A process that has imported torch and forks programs on request.

    python -m lockstep.processes.server FD MODULE ...

Importing torch takes seconds of CPU time. This process imports it once, together with the named
modules, starts no threads, and forks a child for every program that `forked.py` asks for. The
child takes the environment, folder, files and arguments of the request and then runs the program
as `python` would. The server ends, and kills its children, when the other end of FD is closed.
"""

from __future__ import annotations

import builtins
import gc
import importlib
import io
import json
import os
import random
import runpy
import select
import signal
import socket
import struct
import sys
import tempfile
import threading
import time
import traceback
import weakref
import zipfile
from collections.abc import Sequence
from contextlib import suppress
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

from lockstep import world
from lockstep.processes.fork import end_group, no_garbage_collection
from lockstep.processes.lazy_dynamo import put_off_dynamo

MOST_FILES = 64
"""Most file descriptors that one request carries."""
NUMBER = struct.Struct("=q")
"""How process ids and exit statuses travel."""


class Server:
    """The loop: take requests, fork children, report how they end."""

    def __init__(self, control: socket.socket) -> None:
        self.control = control
        self.children: dict[int, int] = {}
        """For each child, the pipe that takes its exit status."""
        self.woken, self.wake = os.pipe()
        os.set_blocking(self.wake, False)
        signal.set_wakeup_fd(self.wake)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)

    def run(self) -> None:
        """Serve until the client closes its end."""
        try:
            while True:
                files = [self.control.fileno(), self.woken]
                ready, _, _ = select.select(files, [], [])
                if self.woken in ready:
                    os.read(self.woken, 1024)
                self._reap()
                if files[0] in ready and not self._take():
                    return
        finally:
            for pid in self.children:
                end_group(pid)

    def _take(self) -> bool:
        """Take one request and fork its child; return False at the end of requests."""
        word, files, _, _ = socket.recv_fds(self.control, 1, MOST_FILES)
        if not word:
            return False
        request_file, status, *rest = files
        with os.fdopen(request_file) as file:
            request = json.load(file)
        pid = os.fork()
        if not pid:
            self._become(request, rest, status)
        with suppress(PermissionError, ProcessLookupError):
            os.setpgid(pid, pid)
        self.children[pid] = status
        for file_number in rest:
            os.close(file_number)
        self.control.sendall(NUMBER.pack(pid))
        return True

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if not pid:
                return
            pipe = self.children.pop(pid, None)
            if pipe is not None:
                with suppress(BrokenPipeError):
                    os.write(pipe, NUMBER.pack(os.waitstatus_to_exitcode(status)))
                os.close(pipe)

    def _become(self, request: dict[str, Any], files: list[int], status: int) -> NoReturn:
        """In the child: take on the request, run its program, exit as Python does."""
        code = 1
        try:
            server = os.getppid()
            os.setpgid(0, 0)
            world.die_with(server)
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            signal.signal(signal.SIGINT, signal.default_int_handler)
            self.control.close()
            for number in (self.woken, self.wake, status, *self.children.values()):
                os.close(number)
            _place_files(files, [0, 1, 2, *request["keep"]])
            world.replace_environment(request["env"])
            os.chdir(request["cwd"])
            _renew()
            world.keep_freed_memory()
            if request["hook"]:
                module, function = request["hook"].split(":")
                getattr(importlib.import_module(module), function)()
            code = run_main(request["command"])
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)


def _place_files(files: Sequence[int], numbers: Sequence[int]) -> None:
    """Give the files these numbers, and let programs that the child starts inherit 0, 1 and 2."""
    import fcntl

    high = max(*numbers, *files) + 1
    # First move all of them out of the way: one may have a number that another is to get.
    moved = [fcntl.fcntl(file, fcntl.F_DUPFD, high) for file in files]
    for file in files:
        os.close(file)
    for file, number in zip(moved, numbers, strict=True):
        os.dup2(file, number, inheritable=True)
        os.close(file)


def _renew() -> None:
    """Forget what a new interpreter would not share with others: random state, cached places."""
    random.seed()
    tempfile.tempdir = None
    time.tzset()
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed()
    if "torch" in sys.modules:
        sys.modules["torch"].seed()


def run_main(command: Sequence[str]) -> int:
    """Run a script, or `-m module`, with its arguments, as `python` does; return the exit code."""
    code, interrupted = 1, False
    try:
        if command[0] == "-m":
            sys.argv = ["-m", *command[2:]]
            _put_first(os.getcwd())
            runpy.run_module(command[1], run_name="__main__", alter_sys=True)
        else:
            sys.argv = list(command)
            _run_script(command[0])
        code = 0
    except SystemExit as leaving:
        code = _exit_code(leaving)
    except BaseException as error:
        interrupted = isinstance(error, KeyboardInterrupt)
        trace = error.__traceback__
        while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
            trace = trace.tb_next
        sys.excepthook(type(error), error.with_traceback(trace), trace)
    _shut_down()
    if interrupted:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    return code


def _run_script(path: str) -> None:
    main = ModuleType("__main__")
    loader = SourceFileLoader("__main__", path)
    vars(main).update(__file__=path, __loader__=loader, __builtins__=builtins, __cached__=None)
    sys.modules["__main__"] = main
    _put_first(os.path.dirname(os.path.realpath(path)))
    exec(compile(Path(path).read_bytes(), path, "exec", dont_inherit=True), vars(main))


def _put_first(folder: str) -> None:
    if not sys.flags.safe_path:
        sys.path.insert(0, folder)


def _exit_code(leaving: SystemExit) -> int:
    if leaving.code is None:
        return 0
    if isinstance(leaving.code, int):
        return leaving.code & 0xFF
    sys.stderr.write(f"{leaving.code}\n")
    return 1


def _shut_down() -> None:
    """Do what scripts expect of the interpreter's end, without taking torch apart."""
    import atexit

    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):
            stream.flush()
    # A script may leave files open: Python completes them when it deletes them. Plain files come
    # last, because archives, text and compressed files write into them.
    # Not isinstance: it asks an object for its class, and a dead proxy raises an error.
    files = [
        thing
        for thing in gc.get_objects()
        if issubclass(type(thing), io.TextIOBase | io.BufferedIOBase | zipfile.ZipFile)
    ]
    for thing in sorted(files, key=_depth):
        with suppress(Exception):
            thing.close()


def _depth(file: Any) -> int:
    """Return the place of a file among those that have to be closed."""
    if isinstance(file, zipfile.ZipFile | io.TextIOBase):
        return 0
    return 2 if isinstance(file, io.BufferedWriter | io.BufferedRandom) else 1


def main(control: int, modules: Sequence[str]) -> None:
    """Import the modules, report what is loaded, and serve."""
    if not sys.flags.safe_path:
        # Python put the folder that this process was started in first.
        del sys.path[0]
    with no_garbage_collection():
        put_off_dynamo()
        for name in modules:
            importlib.import_module(name)
    with socket.socket(fileno=control) as connection:
        connection.set_inheritable(False)
        loaded = sorted({name.partition(".")[0] for name in sys.modules})
        threads = len(os.listdir("/proc/self/task"))
        message = json.dumps({"modules": loaded, "threads": threads}).encode()
        connection.sendall(NUMBER.pack(len(message)) + message)
        # What torch wants done at the end of this process, to its own libraries, takes each child
        # 40 ms. There is no public list of these wishes.
        for wish in list(weakref.finalize._registry):  # type: ignore[attr-defined]
            wish.atexit = False
        # The collector of a child need not look at, and so copy, what all children share.
        gc.freeze()
        Server(connection).run()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
