"""Rewrite a training program for one GPU so that it runs on many.

observe/    runs the program once, and notes what it does
analysis/   finds out by reading what a run does not show
refuse/     reasons not to convert it, one per file
sites       finds the expressions that a run has named
draft       the new text of one file
companion   the module with helpers that the program imports
work        what the rewrites share
rewrites/   one change per file
conversion  the new files, and how they are made
verify/     runs both programs and compares them
search      tries what a run leaves open, until a result is proven
"""

from lockstep.convert.conversion import Conversion, convert, read_only, refusal
from lockstep.convert.work import Change, Note, Options

__all__ = ["Change", "Conversion", "Note", "Options", "convert", "read_only", "refusal"]
