"""Sits beside a submission: runs the doctor on it, and leaves word of what happened.

A process of its own, whose surroundings are clean and which inherits whatever the submission
lets loose. It runs nothing of the submission in itself, and needs no torch.
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
"""Bytes of a file that a submission may write."""
REPORT = "report.json"


@dataclass(frozen=True, kw_only=True)
class Orders:
    """What to run."""

    work: str
    """The folder with train.py: it runs there."""
    notes: str
    """Where probes and doctor write."""
    arguments: tuple[str, ...]
    replicas: int
    timeout: float
    oracle: bool
    on_gpus: bool

    def write(self, path: Path) -> None:
        """For the proctor."""
        path.write_text(json.dumps(asdict(self)))

    @classmethod
    def read(cls, path: Path) -> Orders:
        """From the grader."""
        found = json.loads(path.read_text())
        return cls(**found | {"arguments": tuple(found["arguments"])})


def sit(orders: Orders) -> None:
    """Run it all, write the report, and stay: what the submission let loose is below this process.

    The grader ends it, with all of them.
    """
    try:
        report = _examined(orders)
    except LockstepError as error:
        report = {"error": str(error)}
    except Exception as error:  # a submission may have taken the notes away, or filled the disk
        report = {"error": f"{type(error).__name__}: {error}"}
    temporary = Path(orders.notes, f"{REPORT}.part")
    temporary.parent.mkdir(parents=True, exist_ok=True)
    temporary.write_text(json.dumps(report))
    temporary.replace(Path(orders.notes, REPORT))
    while True:
        signal.pause()


def _examined(orders: Orders) -> dict[str, Any]:
    if sys.platform == "linux":
        pr_set_child_subreaper = 36
        ctypes.CDLL(None).prctl(pr_set_child_subreaper, 1, 0, 0, 0)
    resource.setrlimit(resource.RLIMIT_FSIZE, (LARGEST, LARGEST))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.chdir(orders.work)
    what = Examination(
        script=Path(orders.work, "train.py"),
        arguments=orders.arguments,
        replicas=orders.replicas,
        steps=None,
        timeout=orders.timeout,
        real_gpus=orders.on_gpus,
        oracle=orders.oracle,
        early=("lockstep.assess.witness",),
    )
    examined = examine(what, Path(orders.notes), RULES)
    close_servers()
    # The doctor has ended the ranks and their groups. Whoever is still there has left them.
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
    sit(Orders.read(Path(sys.argv[1])))
