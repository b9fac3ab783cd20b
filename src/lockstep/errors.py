"""Every error that lockstep raises on purpose, and the exit code each one ends in.

LockstepError
├── UsageError        2   the request cannot work: change what you typed
│   ├── RecipeError       a recipe is unknown, broken, or contradicts itself
│   ├── PlanError         batch, shards and replicas do not fit together
│   ├── DataError         a data file is missing, damaged or not what it should be
│   ├── FolderError       the run folder holds something else, or nothing to resume
│   ├── SourceError       a script cannot be read
│   └── AssessError       a folder holds no task, or no certificate can be made of it
├── Refused           1   a certificate is forged, edited or expired
├── ConvertError      1   a script is not converted, and why
│   └── Already       0   it runs on several GPUs already
└── RunError          1   the request was fine, the run did not end well
    ├── NotFinite         the loss became NaN or infinite
    ├── Interrupted       Ctrl-C or SIGTERM; a checkpoint was written first
    ├── CheckpointError   no checkpoint in the folder can be trusted
    └── ReplicaDied       a replica ended before the training did
"""


class LockstepError(Exception):
    """The root: catching it catches every error that lockstep raises on purpose."""

    exit_code = 1


class UsageError(LockstepError):
    """The request cannot work as typed."""

    exit_code = 2


class RecipeError(UsageError):
    """A recipe is unknown, raises, or contradicts itself."""


class PlanError(UsageError):
    """Global batch, shards and replicas do not fit together."""


class DataError(UsageError):
    """A data file is missing, damaged, or not what its name says."""


class FolderError(UsageError):
    """The run folder holds another run, or nothing to resume."""


class SourceError(UsageError):
    """A script cannot be read: it is missing, no text, or no Python."""


class AssessError(UsageError):
    """What an assessment needs is missing or not what it should be."""


class Refused(LockstepError):
    """A certificate that cannot be trusted."""


class ConvertError(LockstepError):
    """A script cannot be converted without changing what it does."""


class Already(ConvertError):
    """A script runs on several GPUs already: there is nothing to do."""

    exit_code = 0


class RunError(LockstepError):
    """The run started and did not end well."""


class NotFinite(RunError):
    """The loss became NaN or infinite."""


class Interrupted(RunError):
    """The run was asked to stop and did so, after a checkpoint."""


class CheckpointError(RunError):
    """No checkpoint can be trusted."""


class ReplicaDied(RunError):
    """A replica ended before the training did."""
