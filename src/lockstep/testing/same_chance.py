"""Inside every process of a script: chance is the same in all runs, as when convert verifies."""

from __future__ import annotations

from lockstep.convert.verify import in_process
from lockstep.probes.recorder import Recorder


def install(recorder: Recorder) -> None:
    """Install everything, and keep the uneven last batch of an epoch: it is tested, too."""
    in_process.install(recorder, uneven=True)
