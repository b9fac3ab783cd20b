"""Run a submission under the doctor: python -m lockstep.assess.proctor REQUEST.

The grader starts this process with a clean environment. It runs no code of the submission itself
and does not import torch. Processes that the submission leaves behind become its children.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import signal
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from lockstep.doctor import RULES
from lockstep.doctor.run import Examination, examine
from lockstep.errors import LockstepError
from lockstep.processes.forked import close_servers
from lockstep.processes.tree import alive, below

LARGEST = 4 << 30
"""The largest file in bytes that a submission may write."""


@dataclass(frozen=True, kw_only=True)
class Request:
    """A program to run, and its limits."""

    work: Path
    """The folder with train.py, in which the program runs."""
    scratch: Path
    """A new folder for all other files of the run."""
    arguments: tuple[str, ...]
    out: Path
    """The folder in which the program saves its weights."""
    replicas: int
    seconds: float
    """How long the program may run."""
    timeout: float = 60.0
    """How long the program may make no progress before it counts as hung, in seconds."""
    oracle: bool = False
    """Whether the doctor repeats the first step on one process."""
    on_gpus: bool = False

    @property
    def notes(self) -> Path:
        """The folder in which the probes and the doctor write."""
        return self.scratch / "notes"

    @property
    def report(self) -> Path:
        """The file in which the proctor describes how the run ended."""
        return self.notes / "report.json"

    def write(self, path: Path) -> None:
        """Write the request for the proctor."""
        path.write_text(json.dumps(asdict(self), default=str))

    @classmethod
    def read(cls, path: Path) -> Request:
        """Read a request that `write` wrote."""
        found = json.loads(path.read_text())
        folders = {name: Path(found[name]) for name in ("work", "scratch", "out")}
        return cls(**found | folders | {"arguments": tuple(found["arguments"])})


def main(request: Request) -> None:
    """Run the submission, write the report, and wait until the grader ends this process.

    The processes that the submission left behind are below this one, so the grader can end them.
    """
    try:
        report = _examined(request)
    except LockstepError as error:
        report = {"error": str(error)}
    except Exception as error:  # a submission may have deleted the notes or filled the disk
        report = {"error": f"{type(error).__name__}: {error}"}
    request.notes.mkdir(parents=True, exist_ok=True)
    temporary = request.report.with_suffix(".part")
    temporary.write_text(json.dumps(report))
    temporary.replace(request.report)
    while True:
        signal.pause()


def _examined(request: Request) -> dict[str, Any]:
    if sys.platform == "linux":
        pr_set_child_subreaper = 36
        ctypes.CDLL(None).prctl(pr_set_child_subreaper, 1, 0, 0, 0)
    resource.setrlimit(resource.RLIMIT_FSIZE, (LARGEST, LARGEST))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.chdir(request.work)
    what = Examination(
        script=request.work / "train.py",
        arguments=request.arguments,
        replicas=request.replicas,
        steps=None,
        timeout=request.timeout,
        real_gpus=request.on_gpus,
        oracle=request.oracle,
        early=("lockstep.assess.witness",),
    )
    examined = examine(what, request.notes, RULES)
    close_servers()
    # The doctor has ended the ranks and their groups. The processes that remain have left them.
    left = [name for pid, name in alive(below(os.getpid())) if pid != os.getpid()]
    outcome = examined.trace.outcome
    return {
        "how": outcome.how,
        "codes": outcome.codes,
        "oracle": examined.trace.oracle,
        "left": left,
        "stuck": [[one.doing, one.stack[-4000:]] for one in outcome.stuck],
        "findings": [f.described() for f in examined.findings],
    }


if __name__ == "__main__":
    main(Request.read(Path(sys.argv[1])))
