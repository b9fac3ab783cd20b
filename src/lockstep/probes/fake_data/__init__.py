"""Let a script run without data and libraries that are not on this machine.

Data sets that are missing become small synthetic ones of the same shapes. Libraries that only show
or log become silent. All of it is recorded, because numbers from such a run say nothing about the
real data.
"""

from __future__ import annotations

import io
import os
from typing import Any

from lockstep.probes.fake_data import files, finder
from lockstep.probes.fake_data.notes import Notes
from lockstep.probes.patching import replaces
from lockstep.probes.recorder import Recorder


def install(recorder: Recorder) -> None:
    """Replace what is missing, in this process. Torch need not be imported yet."""
    Notes.tell = lambda fact: recorder.note("fake_data", what=fact)
    finder.install()
    files.install()

    @replaces("popen", os)
    def asked(popen: Any, cmd: str, *args: Any, **kwargs: Any) -> Any:
        """Answer for the size of the terminal: the script has none, and some progress bars ask."""
        asks = cmd.split() == ["stty", "size"]
        return io.StringIO("24 80\n") if asks else popen(cmd, *args, **kwargs)
