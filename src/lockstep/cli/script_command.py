"""Run a command that reads scripts: doctor and convert. They start without Typer and torch."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from io import TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING

from lockstep.errors import SourceError

if TYPE_CHECKING:
    from lockstep.source.script import Script


def run_command(
    parser: argparse.ArgumentParser,
    arguments: Sequence[str],
    command: Callable[[argparse.Namespace], int],
) -> int:
    """Parse the arguments, run the command and return its exit code.

    `own` gets the script's arguments, those after `--`, or None without a `--`.
    """
    arguments, own = list(arguments), None
    if "--" in arguments:
        at = arguments.index("--")
        arguments, own = arguments[:at], arguments[at + 1 :]
    given = parser.parse_args(arguments)
    given.own = own
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            # File names may hold any character, and a terminal may support only ASCII.
            stream.reconfigure(errors="backslashreplace")
    try:
        code = command(given)
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader of the pipe, such as `head`, has closed it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 1
    except KeyboardInterrupt:
        return 130
    return code


def read_standard_input() -> Script:
    """Read a script from standard input."""
    from lockstep.source.reading import MOST_BYTES, decoded, parse

    name = Path("standard input")
    content = sys.stdin.buffer.read(MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        raise SourceError(f"{name} has more than {MOST_BYTES / 1e6:g} MB, too much for a script.")
    return parse(name, decoded(name, content))
