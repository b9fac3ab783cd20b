"""lockstep train: train a recipe on N replicas."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lockstep.cli.flags import Json, with_recipe_flags
from lockstep.console import Console, duration
from lockstep.errors import PlanError, RunError
from lockstep.world import launched

if TYPE_CHECKING:
    from lockstep.engine.recipe.recipe import Recipe


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
    from lockstep.cluster.launch import choose, launch
    from lockstep.engine.recipe.job import Job
    from lockstep.report.run import write_run_report

    if resume and out is None:
        raise PlanError("--resume needs --out, the folder of the run to continue.")
    if out is None and launched() is not None:
        raise PlanError("under torchrun, name the run's folder with --out: all processes share it.")
    console = Console(as_json=json)
    device, replicas = choose(run.pop("device"), replicas, run["share_gpu"])
    job = Job(
        recipe=recipe,
        out=out or Path("runs") / f"{recipe.name}-{time.strftime('%Y%m%d-%H%M%S')}",
        replicas=replicas,
        exact=exact,
        resume=resume,
        checkpoint_every=checkpoint_every,
        keep=keep,
        timeline=timeline,
        noise=noise,
        **run,
    )
    joined = launched()
    speaks = joined is None or joined[0] == 0
    try:
        summary = launch(job, device=device, console=console, max_restarts=max_restarts)
    except RunError:
        # The report also shows a run that failed.
        if speaks and (job.out / "run.json").exists():
            write_run_report(job.out)
        raise
    if not speaks:
        return
    report = write_run_report(job.out)
    if json:
        console.emit(summary | {"folder": str(job.out), "report": str(report)})
        return
    _show(console, summary, job.out, report)


def _show(console: Console, summary: dict[str, Any], out: Path, report: Path) -> None:
    mode = "exact" if summary["exact"] else "fast"
    rows = [["replicas", f"{summary['replicas']} ({mode} mode, {summary['speed']['name']})"]]
    rows += [[name.replace("_", " "), f"{value:.4f}"] for name, value in summary["metrics"].items()]
    rows.append(["time", duration(summary["seconds"])])
    if summary["recipe"]["target"] is not None:
        reached = summary["seconds_to_target"]
        shown = "not reached" if reached is None else duration(reached)
        rows.append([f"time to {summary['recipe']['target']:g}", shown])
    if summary["samples_per_second"]:
        rows.append(["samples/s", f"{summary['samples_per_second']:,.0f}"])
    if summary["noise"]:
        rows.append(["noise scale", _spoken(summary["noise"])])
    rows.append(["weights", f"sha256 {summary['weights_sha256'][:16]}"])
    console.table(summary["recipe"]["name"], ["", ""], rows)
    console.say(f"Folder: {out}")
    console.say(f"Report: {report}")


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
