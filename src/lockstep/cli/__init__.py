"""The command line: one thin file per command, imported when the user calls it."""

from __future__ import annotations

import os
import sys
import traceback
from importlib import import_module
from typing import NoReturn

from lockstep.errors import Interrupted, LockstepError, NotFinite, PlanError, RecipeError
from lockstep.world import launched


def main() -> None:
    """Run a command; print lockstep's own errors in one line, without a traceback."""
    from lockstep.console import Console

    try:
        # Importing Typer and the other commands takes longer than checking a script.
        if sys.argv[1:2] in (["doctor"], ["convert"]):
            sys.exit(import_module(f"lockstep.cli.{sys.argv[1]}").run(sys.argv[2:]))
        from lockstep.cli.app import app

        app()
    except LockstepError as error:
        joined = launched()
        # Under torchrun all processes raise these errors: only rank 0 prints them.
        shared = isinstance(error, PlanError | RecipeError | Interrupted | NotFinite)
        if joined is None or joined[0] == 0 or not shared:
            Console().error(str(error))
        _leave(error.exit_code)
    except ModuleNotFoundError as error:
        extra = ("torch", "numpy", "safetensors", "plotly", "scipy")
        if error.name not in (*extra, "libcst"):
            raise
        package = "'lockstep[train]'" if error.name in extra else "lockstep"
        Console().error(f"this needs {error.name}. Install it with: pip install {package}")
        sys.exit(2)
    except Exception:
        if launched() is None:
            raise
        traceback.print_exc()
        _leave(1)


def _leave(code: int) -> NoReturn:
    if launched() is not None:
        # DDP may still be alive: shutting down the interpreter could hang on its threads.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)
