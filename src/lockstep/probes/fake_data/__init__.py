"""Let a script run without data and libraries that are not here.

What is here is used. For data sets that are missing there are small synthetic ones of the same
shapes, for libraries that only show or log there are silent ones, and all of it is noted, because
numbers from such a run say nothing about the real data.
"""

from __future__ import annotations

from lockstep.probes.fake_data import files, finder, terminal
from lockstep.probes.fake_data.notes import Notes, pretended
from lockstep.probes.recorder import Recorder

__all__ = ["install", "pretended"]


def install(recorder: Recorder) -> None:
    """Stand in from now on, in this process. Torch need not be there yet."""
    Notes.tell = lambda fact: recorder.note("pretended", what=fact)
    finder.install()
    files.install()
    terminal.install()
