"""lockstep audit: replay steps of a run, or find where two runs diverge."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from lockstep.cli.flags import Json
from lockstep.console import Console, reserved_output
from lockstep.errors import PlanError
from lockstep.processes.fresh import begin_again_with_fixed_hashes


def command(
    run: Annotated[Path, typer.Argument(help="Folder of a run in exact mode.")],
    other: Annotated[Path | None, typer.Argument(help="A second run to compare it with.")] = None,
    *,
    steps: Annotated[
        str | None, typer.Option(help="Steps to replay, as FIRST:END. Default: the last ten.")
    ] = None,
    recipe: Annotated[
        str | None,
        typer.Option(help="The run's recipe, if it was an object or its file has moved."),
    ] = None,
    json: Json = False,
) -> None:
    """Replay steps of a run and compare them to the bit, or find where two runs diverge."""
    # A replay must order sets of strings as the run did.
    begin_again_with_fixed_hashes()
    with reserved_output(json):
        console = Console(as_json=json)
        if other is not None:
            if steps is not None:
                raise PlanError("--steps is for one run: two runs are compared from the beginning.")
            _compare(run, other, console, recipe, json=json)
        else:
            _replay(run, _stretch(steps), console, recipe, json=json)


def _stretch(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    first, colon, end = text.partition(":")
    try:
        found = (int(first or 0), int(end))
    except ValueError:
        found = (0, 0)
    if not colon or found[0] < 0 or found[0] >= found[1]:
        raise PlanError(f"--steps {text}: write FIRST:END, such as 900:910.")
    return found


def _replay(
    run: Path, steps: tuple[int, int] | None, console: Console, recipe: str | None, *, json: bool
) -> None:
    from lockstep.audit import audit_run

    found = audit_run(run, steps, console, recipe)
    if json:
        console.emit(asdict(found) | {"equal": found.equal})
    elif found.equal:
        console.say(
            f"Equal to the bit: {found.compared} receipts of steps {found.first} to {found.last}, "
            f"replayed from step {found.replayed_from}."
        )
    else:
        console.say(
            f"Step {found.differs_at} differs: its replay gives a gradient that differs from the "
            "recorded one. A faulty device, another machine or library, or code that depends on "
            "its rank or on time can be the cause."
        )
    if not found.equal:
        raise typer.Exit(1)


def _compare(run: Path, other: Path, console: Console, recipe: str | None, *, json: bool) -> None:
    from lockstep.audit import compare_runs

    found = compare_runs(run, other, console, recipe)
    if json:
        console.emit(asdict(found) | {"equal": found.equal})
    elif found.equal:
        console.say(f"The runs took the same {found.steps} steps, to the bit.")
    else:
        console.say(f"The runs diverge at step {found.differs_at}:")
        for reason in found.reasons:
            console.say(f"- {reason}")
    if not found.equal:
        raise typer.Exit(1)
