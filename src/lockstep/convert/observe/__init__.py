"""See what a script does: run it once, and note which objects train and at which lines.

    in_process   notes, inside the process of the script
    seen         reads the notes of a run

A module imports only from those above it.
"""

from lockstep.convert.observe.seen import (
    Draw,
    Forward,
    Made,
    Place,
    Seen,
    SeenLoader,
    Spot,
    moved,
    readouts,
    seen,
)

__all__ = [
    "Draw",
    "Forward",
    "Made",
    "Place",
    "Seen",
    "SeenLoader",
    "Spot",
    "moved",
    "readouts",
    "seen",
]
