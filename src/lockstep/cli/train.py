"""lockstep train: train a recipe on N replicas."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lockstep.cli.flags import Flags, Json, with_recipe_flags
from lockstep.console import Console, duration
from lockstep.errors import RecipeError
from lockstep.world import launched

if TYPE_CHECKING:
    from lockstep.engine.recipe.recipe import Recipe
    from lockstep.training import Run


_OWN: Flags = {
    "replicas": (int, None, "Number of processes, each with one device. Default: all GPUs."),
    "exact": (bool, False, "Compute the same bits on any number of replicas."),
    "out": (Path, None, "Folder of the run. Default: runs/RECIPE-TIME."),
    "resume": (bool, False, "Continue the run in --out from its last checkpoint."),
    "checkpoint_every": (int, None, "Steps between checkpoints. 0: none. Default: one per epoch."),
    "keep": (int, 3, "Number of checkpoints to keep."),
    "max_restarts": (int, 0, "How often to restart from the last checkpoint if a replica dies."),
    "timeline": (bool, False, "Measure how long each of the fifteen parts of a step takes."),
    "noise": (bool, False, "Measure the gradient noise scale while training."),
    "check_every": (
        int,
        256,
        "Average number of steps between two checks that compute a shard again. 0: never.",
    ),
    "loggers": (
        str,
        "",
        "Loggers besides metrics.jsonl, separated by commas: csv, tensorboard, mlflow, wandb.",
    ),
}


_FOR_PROGRAMS = {
    *("seed", "global_batch", "shards", "exact", "precision", "micro_batch", "threads", "workers"),
    *("checkpoint_every", "keep", "max_steps", "timeout", "device", "loggers", "speed", "noise"),
    "check_every",
    "may_change",
}
"""Flags that replace arguments of a program's Loop."""


def _train_program(path: Path, typed: dict[str, Any], arguments: list[str]) -> None:
    """Run a program that contains a lockstep.Loop."""
    from lockstep.training import train_program

    start = {"json", "recipe", "replicas", "out", "resume", "max_restarts", "share_gpu"}
    if odd := sorted(typed.keys() - _FOR_PROGRAMS - start):
        names = ", ".join("--" + name.replace("_", "-") for name in odd)
        raise RecipeError(f"{names} work only for recipes: {path} has its own training loop.")
    console = Console(as_json=typed.get("json", False))
    given = {name: typed[name] for name in start - {"json", "recipe"} if name in typed}
    flags = {name: value for name, value in typed.items() if name in _FOR_PROGRAMS}
    done = train_program(path, arguments, console, flags=flags, **given)
    _finish(console, done, json=typed.get("json", False))


@partial(with_recipe_flags, own=_OWN, program=_train_program)
def command(recipe: "Recipe", run: dict[str, Any], *, json: Json = False, **own: Any) -> None:
    """Train a recipe, or run a program with a lockstep.Loop, on N replicas."""
    from lockstep.training import train_here

    console = Console(as_json=json)
    _finish(console, train_here(recipe, console, **own, **run), json=json)


def _finish(console: Console, done: "Run", *, json: bool) -> None:
    joined = launched()
    if joined is not None and joined[0] != 0:
        return
    if json:
        console.emit({**done.summary, "folder": str(done.folder), "report": str(done.report)})
        return
    _show(console, done)


def _show(console: Console, run: "Run") -> None:
    recipe, mode = run.summary["recipe"], "exact" if run.exact else "fast"
    speed = run.summary.get("speed", {}).get("name", "eager")
    rows = [["replicas", f"{run.replicas} ({mode} mode, {speed})"]]
    rows += [[name.replace("_", " "), f"{value:.4f}"] for name, value in run.metrics.items()]
    rows.append(["time", duration(run.seconds)])
    if recipe.get("target") is not None:
        reached = run.seconds_to_target
        shown = "not reached" if reached is None else duration(reached)
        rows.append([f"time to {recipe['target']:g}", shown])
    if run.samples_per_second:
        rows.append(["samples/s", f"{run.samples_per_second:,.0f}"])
    if run.summary.get("noise"):
        rows.append(["noise scale", _spoken(run.summary["noise"])])
    rows.append(["weights", f"sha256 {run.weights_sha256[:16]}"])
    console.table(recipe["name"], ["", ""], rows)
    if (loops := run.summary.get("loops", 1)) > 1:
        console.say(f"The program has {loops} loops; this is the last. Each has its own folder.")
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
