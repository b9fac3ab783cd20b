"""A measurement in a process of its own: python -m lockstep.labs.scale.apart module:function FD.

Replicas are forked, and a page cannot fork: its process has threads, and signals are not its to
take. The function is called with a report and with what was given; it returns a frozen dataclass.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from typing import Any

from lockstep.errors import LockstepError, RunError

Report = Callable[[float, str], None]


def apart(function: str, report: Report, **given: Any) -> dict[str, Any]:
    """What `module:function` returned, as plain data; `report` hears how far it is."""
    reading, writing = os.pipe()
    with tempfile.TemporaryFile() as log, os.fdopen(reading) as lines:
        process = subprocess.Popen(
            [sys.executable, "-m", __name__, function, str(writing)],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=subprocess.STDOUT,
            pass_fds=(writing,),
            start_new_session=True,
        )
        os.close(writing)
        try:
            assert process.stdin is not None
            with suppress(BrokenPipeError):  # it has ended already, and its log says why
                process.stdin.write(json.dumps(given).encode())
                process.stdin.close()
            for line in lines:
                kind, *rest = json.loads(line)
                if kind == "at":
                    report(*rest)
                elif kind == "failed":
                    raise RunError(rest[0])
                else:
                    return dict(rest[0])
            # What it says of its own end comes after the pipe's.
            process.wait()
        finally:
            # Its replicas die with it.
            process.kill()
            process.wait()
        log.seek(0)
        said = log.read().decode(errors="replace").strip()
    raise RunError(f"{function} ended in the middle, exit code {process.returncode}.\n{said}")


def _main(function: str, pipe: int) -> None:
    with os.fdopen(pipe, "w") as answers:

        def tell(*parts: Any) -> None:
            answers.write(json.dumps(parts) + "\n")
            answers.flush()

        module, name = function.split(":")
        measure = getattr(importlib.import_module(module), name)
        try:
            found = measure(lambda share, what: tell("at", share, what), **json.load(sys.stdin))
        except LockstepError as error:
            tell("failed", str(error))
        else:
            tell("done", asdict(found))


if __name__ == "__main__":
    _main(sys.argv[1], int(sys.argv[2]))
