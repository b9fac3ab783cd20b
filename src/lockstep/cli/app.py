"""The Typer app with all commands."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

import typer

from lockstep.cli import assess, audit, bench, compare, convert, doctor, lab, train, tune

app = typer.Typer(
    name="lockstep",
    help="Train on every GPU you have. Keep the training of one.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
# A program takes arguments of its own, after `--`.
app.command(
    "train",
    short_help="Train a recipe or a program with a Loop.",
    context_settings={"allow_extra_args": True},
)(train.command)
app.command("compare", short_help="Compare one replica with N.")(compare.command)
app.command("bench", short_help="Time lockstep beside other libraries.")(bench.command)
app.command("tune", short_help="Advise on batch size, rate and warmup.")(tune.command)
app.command("audit", short_help="Replay steps, or compare two runs.")(audit.command)
app.command("lab", short_help="List the labs of the workshop, or open one.")(lab.command)
app.add_typer(assess.app, name="assess", short_help="Take the graded assessment.")


def _add(name: str, text: str, run: Callable[[Sequence[str]], int]) -> None:
    """Add a command that parses its arguments itself."""
    settings = {"allow_extra_args": True, "ignore_unknown_options": True}

    @app.command(name, help=text, add_help_option=False, context_settings=settings)
    def command(context: typer.Context) -> None:
        sys.exit(run(context.args))


_add("doctor", "Find data-parallel bugs in a training script.", doctor.run)
_add("convert", "Convert a single-GPU script to DDP.", convert.run)


@app.callback(invoke_without_command=True)
def _root(version: bool = typer.Option(False, "--version", help="Show the version.")) -> None:
    if version:
        from importlib.metadata import version as installed

        from lockstep.console import Console

        Console().say(f"lockstep {installed('lockstep')}")
        raise typer.Exit
