"""lockstep train: train a recipe on N replicas."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lockstep.cli.flags import Json, with_recipe_flags
from lockstep.console import Console, duration
from lockstep.world import launched

if TYPE_CHECKING:
    from lockstep.engine.recipe.recipe import Recipe
    from lockstep.training import Run


@with_recipe_flags
def command(
    recipe: "Recipe",
    run: dict[str, Any],
    *,
    replicas: Annotated[
        int | None,
        typer.Option(help="Number of processes, each with one device. Default: all GPUs."),
    ] = None,
    exact: Annotated[
        bool, typer.Option("--exact", help="Same bits on any number of replicas.")
    ] = False,
    out: Annotated[
        Path | None, typer.Option(help="Folder of the run. Default: runs/RECIPE-TIME.")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue the run in --out from its last checkpoint.")
    ] = False,
    checkpoint_every: Annotated[
        int | None, typer.Option(help="Steps between checkpoints. 0: none. Default: one per epoch.")
    ] = None,
    keep: Annotated[int, typer.Option(help="Number of checkpoints to keep.")] = 3,
    max_restarts: Annotated[
        int, typer.Option(help="How often to restart from the last checkpoint if a replica dies.")
    ] = 0,
    timeline: Annotated[
        bool,
        typer.Option(
            "--timeline", help="Measure how long each of the fifteen parts of a step takes."
        ),
    ] = False,
    noise: Annotated[
        bool, typer.Option("--noise", help="Measure the gradient noise scale while training.")
    ] = False,
    json: Json = False,
) -> None:
    """Train a recipe on N replicas."""
    from lockstep.training import train_here

    console = Console(as_json=json)
    done = train_here(
        recipe,
        console,
        replicas=replicas,
        exact=exact,
        out=out,
        resume=resume,
        checkpoint_every=checkpoint_every,
        keep=keep,
        max_restarts=max_restarts,
        timeline=timeline,
        noise=noise,
        **run,
    )
    joined = launched()
    if joined is not None and joined[0] != 0:
        return
    if json:
        console.emit({**done.summary, "folder": str(done.folder), "report": str(done.report)})
        return
    _show(console, done)


def _show(console: Console, run: "Run") -> None:
    recipe, mode = run.summary["recipe"], "exact" if run.exact else "fast"
    rows = [["replicas", f"{run.replicas} ({mode} mode, {run.summary['speed']['name']})"]]
    rows += [[name.replace("_", " "), f"{value:.4f}"] for name, value in run.metrics.items()]
    rows.append(["time", duration(run.seconds)])
    if recipe["target"] is not None:
        reached = run.seconds_to_target
        shown = "not reached" if reached is None else duration(reached)
        rows.append([f"time to {recipe['target']:g}", shown])
    if run.samples_per_second:
        rows.append(["samples/s", f"{run.samples_per_second:,.0f}"])
    if run.summary["noise"]:
        rows.append(["noise scale", _spoken(run.summary["noise"])])
    rows.append(["weights", f"sha256 {run.weights_sha256[:16]}"])
    console.table(recipe["name"], ["", ""], rows)
    console.say(f"Folder: {run.folder}")
    console.say(f"Report: {run.report}")


def _spoken(noise: dict[str, Any]) -> str:
    """Format the noise scale with its interval, which may have no upper end.

    >>> _spoken({"value": 1234.5, "low": 900.0, "high": None, "source": "shards"})
    '1,234 samples (900 or more), by shards'
    """
    value, low, high = noise["value"], noise["low"], noise["high"]
    if value is None:
        return "not clear from these steps"
    interval = f"{low:,.0f} or more" if high is None else f"{low:,.0f} - {high:,.0f}"
    return f"{value:,.0f} samples ({interval}), by {noise['source']}"
