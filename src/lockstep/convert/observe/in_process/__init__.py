"""Watch a script, one file per kind of notes.

Every note names a place by the end of an expression; `lockstep.convert.sites` finds it in the text.
"""

from __future__ import annotations

from lockstep.convert.observe.in_process.acts import Acts
from lockstep.convert.observe.in_process.draws import Draws
from lockstep.convert.observe.in_process.files import Files
from lockstep.convert.observe.in_process.forwards import Forwards
from lockstep.convert.observe.in_process.loaders import Loaders
from lockstep.convert.observe.in_process.means import Means
from lockstep.convert.observe.in_process.readouts import Readouts
from lockstep.probes.recorder import Recorder


def install(recorder: Recorder) -> None:
    """Watch the process. The probes call this once torch is imported."""
    Loaders(recorder)
    forwards = Forwards(recorder)
    Acts(recorder, forwards)
    Draws(recorder)
    Means(recorder)
    Readouts(recorder)
    Files(recorder)
