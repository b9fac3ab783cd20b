"""A measurement in a process of its own.

The page's process has threads, which a fork does not survive, and a GPU that was used once cannot
be used by forked replicas.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict
from importlib import import_module
from typing import Any

from lockstep.errors import LockstepError, RunError

Report = Callable[[float, str], None]
"""Says how far a measurement is: a share of 1, and what it does."""


def apart(function: str, report: Report) -> dict[str, Any]:
    """Call `package.module:function` with a report; the fields of the dataclass it returns."""
    reading, writing = os.pipe()
    process = subprocess.Popen(
        [sys.executable, "-m", __name__, function, str(writing)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        pass_fds=(writing,),
    )
    os.close(writing)
    said: dict[str, Any] = {}
    try:
        with os.fdopen(reading) as lines:
            for line in lines:
                said = json.loads(line)
                if "share" in said:
                    report(said["share"], said["what"])
        _, trace = process.communicate()
    finally:
        process.kill()
        process.wait()
    if "answer" in said:
        found: dict[str, Any] = said["answer"]
        return found
    told = said.get("error") or trace.decode(errors="replace").strip()[-2000:]
    raise RunError(f"The measurement ended with exit code {process.returncode}. {told}")


def main(function: str, pipe: str) -> None:
    """In that process."""
    module, _, name = function.partition(":")
    with os.fdopen(int(pipe), "w", buffering=1) as lines:

        def say(**content: Any) -> None:
            lines.write(json.dumps(content) + "\n")

        try:
            measured = getattr(import_module(module), name)(lambda s, w: say(share=s, what=w))
            say(answer=asdict(measured))
        except LockstepError as error:
            say(error=str(error))
            sys.exit(1)


if __name__ == "__main__":
    main(*sys.argv[1:])
