"""Let a script run without data and libraries that are not on this machine.

Data sets that are missing become small synthetic ones of the same shapes. Libraries that only show
or log become silent. All of it is recorded, because numbers from such a run say nothing about the
real data.
"""

from __future__ import annotations

from lockstep.probes.fake_data import files, finder, terminal
from lockstep.probes.fake_data.notes import Notes
from lockstep.probes.recorder import Recorder


def install(recorder: Recorder) -> None:
    """Replace what is missing, in this process. Torch need not be imported yet."""
    Notes.tell = lambda fact: recorder.note("fake_data", what=fact)
    finder.install()
    files.install()
    terminal.install()
