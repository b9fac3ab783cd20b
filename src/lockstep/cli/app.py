"""The Typer app with all commands."""

from __future__ import annotations

import sys

import typer

from lockstep.cli import assess, bench, compare, convert, doctor, lab, train, tune

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
app.command("lab")(lab.command)
app.add_typer(assess.app, name="assess")


@app.command(
    "doctor",
    add_help_option=False,
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
)
def _doctor(context: typer.Context) -> None:
    """Find data-parallel bugs in a training script."""
    sys.exit(doctor.run(context.args))


@app.command(
    "convert",
    add_help_option=False,
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
)
def _convert(context: typer.Context) -> None:
    """Convert a single-GPU script to DistributedDataParallel."""
    sys.exit(convert.run(context.args))


@app.callback(invoke_without_command=True)
def _root(version: bool = typer.Option(False, "--version", help="Show the version.")) -> None:
    if version:
        from importlib.metadata import version as installed

        from lockstep.console import Console

        Console().say(f"lockstep {installed('lockstep')}")
        raise typer.Exit
