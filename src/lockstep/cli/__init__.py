"""The command line: one thin file per command, loaded when it is called for."""

from __future__ import annotations

import os
import sys
import traceback
from typing import NoReturn

import typer

from lockstep.cli import bench, compare, doctor, train, tune
from lockstep.errors import Interrupted, LockstepError, NotFinite, PlanError, RecipeError
from lockstep.world import launched

app = typer.Typer(
    name="lockstep",
    help="Train on every GPU you have. Keep the training of one.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.command("train")(train.command)
app.command("compare")(compare.command)
app.command("bench")(bench.command)
app.command("tune")(tune.command)
app.command("doctor")(doctor.command)


@app.callback(invoke_without_command=True)
def _root(version: bool = typer.Option(False, "--version", help="Show the version.")) -> None:
    if version:
        from importlib.metadata import version as installed

        from lockstep.console import Console

        Console().say(f"lockstep {installed('lockstep')}")
        raise typer.Exit


def main() -> None:
    """Run a command; lockstep's own errors end in one line and an exit code, without a trace."""
    from lockstep.console import Console

    try:
        app()
    except LockstepError as error:
        joined = launched()
        # Under torchrun all processes find the same: one of them says so.
        shared = isinstance(error, PlanError | RecipeError | Interrupted | NotFinite)
        if joined is None or joined[0] == 0 or not shared:
            Console().error(str(error))
        _leave(error.exit_code)
    except ModuleNotFoundError as error:
        if error.name == "libcst":
            Console().error("this needs libcst. Install it with: pip install lockstep")
            sys.exit(2)
        if error.name not in ("torch", "numpy", "safetensors", "plotly", "scipy"):
            raise
        Console().error(f"this needs {error.name}. Install it with: pip install 'lockstep[train]'")
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
