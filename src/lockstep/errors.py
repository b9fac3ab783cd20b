"""Every error that lockstep raises on purpose, with its exit code.

LockstepError
├── UsageError        2   the request cannot work: change what you typed
│   ├── RecipeError       a recipe is unknown, broken, or contradicts itself
│   ├── PlanError         batch, shards and replicas do not fit together
│   ├── DataError         a data file is missing, damaged or of another kind
│   ├── FolderError       the run folder holds something else, or nothing to resume
│   ├── SourceError       a script cannot be read
│   └── AssessError       a folder holds no task, or nothing to certify
├── Refused           1   a certificate is forged, edited or expired
├── ConvertError      1   a script cannot be converted
│   └── Already       0   the script runs on several GPUs already
└── RunError          1   the request was fine, but the run failed
    ├── NotFinite         the loss became NaN or infinite
    ├── Untrusted         a check found that the run broke its promise
    ├── Interrupted       Ctrl-C or SIGTERM; a checkpoint was written first
    ├── CheckpointError   no checkpoint in the folder can be trusted
    └── ReplicaDied       a replica exited before the end of the training
"""

from __future__ import annotations

import sysconfig
import traceback
from pathlib import Path


class LockstepError(Exception):
    """Base class of every error that lockstep raises on purpose."""

    exit_code = 1


class UsageError(LockstepError):
    """The request cannot work as typed."""

    exit_code = 2


class RecipeError(UsageError):
    """A recipe is unknown, raises, or contradicts itself."""


class PlanError(UsageError):
    """Global batch, shards and replicas do not fit together."""


class DataError(UsageError):
    """A data file is missing, damaged, or of another kind than its name says."""


class FolderError(UsageError):
    """The run folder holds another run, or nothing to resume."""


class SourceError(UsageError):
    """A script cannot be read: it is missing, not text, or not valid Python."""


class AssessError(UsageError):
    """A file that an assessment needs is missing or damaged."""


class Refused(LockstepError):
    """A certificate cannot be trusted."""


class ConvertError(LockstepError):
    """A script cannot be converted without changing what it does."""


class Already(ConvertError):
    """A script runs on several GPUs already, so nothing has to be converted."""

    exit_code = 0


class RunError(LockstepError):
    """The run started and failed."""


class NotFinite(RunError):
    """The loss became NaN or infinite."""


class Untrusted(RunError):
    """A check found that the weights, also those of earlier checkpoints, may be wrong."""


class Interrupted(RunError):
    """The user stopped the run; it wrote a checkpoint first."""


class CheckpointError(RunError):
    """No checkpoint in the folder can be trusted."""


class ReplicaDied(RunError):
    """A replica exited before the end of the training."""


def raised(where: str, error: BaseException) -> str:
    """Describe what a user's code raised, with its line and without the frames of lockstep."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [f for f in frames if not f.filename.startswith(("<", str(Path(__file__).parent)))]
    # The last line that the user wrote, not one deep in a library that it called.
    installed = (sysconfig.get_path("stdlib"), sysconfig.get_path("purelib"))
    own = [f for f in own if not f.filename.startswith(installed)] or own
    line = f"\n  line {own[-1].lineno} of {own[-1].filename}: {own[-1].line}" if own else ""
    return f"{where} raised {type(error).__name__}: {error}{line}"
