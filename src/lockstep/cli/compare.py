"""lockstep compare: train on one replica and on N, then compare result and speed."""

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lockstep.cli.flags import Json, with_recipe_flags
from lockstep.console import Console, duration
from lockstep.errors import FolderError, Interrupted, PlanError
from lockstep.world import launched

if TYPE_CHECKING:
    from lockstep.engine.recipe.recipe import Recipe


@with_recipe_flags
def command(
    recipe: "Recipe",
    run: dict[str, Any],
    *,
    replicas: Annotated[int, typer.Option(help="Number of replicas to compare with one.")] = 2,
    exact: Annotated[bool, typer.Option("--exact", help="Compare exact mode only.")] = False,
    fast: Annotated[bool, typer.Option("--fast", help="Compare fast mode only.")] = False,
    seeds: Annotated[
        int, typer.Option(help="Seeds to train with. Two or more allow a paired test.")
    ] = 1,
    margin: Annotated[
        float,
        typer.Option(help="How much worse the first metric may be and still count as retained."),
    ] = 0.01,
    out: Annotated[
        Path | None, typer.Option(help="Folder for the runs. Default: runs/compare-RECIPE-TIME.")
    ] = None,
    json: Json = False,
) -> None:
    """Compare one replica with N: is the result the same, and is it faster?"""
    from lockstep.cluster.launch import choose, launch
    from lockstep.engine.recipe.job import Job
    from lockstep.engine.run.atomic_write import replace_file
    from lockstep.engine.run.comparison import compare_mode, judge
    from lockstep.report.comparison import write_comparison_report

    if replicas < 2:
        raise PlanError(f"--replicas {replicas}: give 2 or more to compare with one replica.")
    if seeds < 1:
        raise PlanError(f"--seeds {seeds}: give 1 or more.")
    if margin < 0:
        raise PlanError(f"--margin {margin}: give 0 or more.")
    if launched() is not None:
        raise PlanError("compare starts its replicas itself: run it without torchrun.")
    console = Console(as_json=json)
    device, _ = choose(run.pop("device"), replicas, run["share_gpu"])
    out = out or Path("runs") / f"compare-{recipe.name}-{time.strftime('%Y%m%d-%H%M%S')}"
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise FolderError(f"--out {out} is not empty. Name a new or an empty folder.")
    modes = [mode for mode, wanted in (("fast", fast), ("exact", exact)) if wanted]
    # Exact mode refuses these options, so compare them in fast mode only.
    only_fast = recipe.batch_norm == "sync" or run["wire"] != "fp32" or run["speed"] == "compile"
    if not modes and only_fast:
        console.say("Comparing fast mode only: exact mode does not support these options.")
    modes = modes or (["fast"] if only_fast else ["fast", "exact"])
    numbers = range(recipe.seed, recipe.seed + seeds)

    def job(mode: str, size: int, seed: int) -> Job:
        return Job(
            recipe=replace(recipe, seed=seed),
            out=out / f"{mode}-{size}" / f"seed-{seed}",
            replicas=size,
            exact=mode == "exact",
            checkpoint_every=0,
            **(run if mode == "fast" else run | {"micro_batch": None}),
        )

    # Build all jobs before the first run: a plan that does not fit fails at once.
    jobs = {(m, n, s): job(m, n, s) for m in modes for s in numbers for n in (1, replicas)}
    summaries: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for done, ((mode, size, seed), one) in enumerate(jobs.items(), 1):
        label = f"[{done}/{len(jobs)}] {mode}, {size} replica{'s' if size > 1 else ''}"
        label += f", seed {seed}" if seeds > 1 else ""
        try:
            summary = launch(one, device=device, console=console, title=label)
        except Interrupted:
            raise Interrupted(
                f"Stopped in run {done} of {len(jobs)}. Start the comparison again."
            ) from None
        summaries.setdefault((mode, size), []).append(summary | {"folder": str(one.out)})
    compared = {m: compare_mode(summaries[m, 1], summaries[m, replicas]) for m in modes}
    document = judge(recipe, replicas, compared, numbers, margin)
    report = write_comparison_report(document, out / "report.html")
    _save(replace_file, out, document)
    if json:
        console.emit(document | {"folder": str(out), "report": str(report)})
    else:
        _show(console, document, out, report)
    raise typer.Exit(0 if document["verdict"]["ok"] else 1)


def _save(write: Callable[[Path, bytes], None], out: Path, document: dict[str, Any]) -> None:
    import json

    write(out / "compare.json", (json.dumps(document, indent=2) + "\n").encode())


def _show(console: Console, document: dict[str, Any], out: Path, report: Path) -> None:
    from statistics import fmean

    modes, replicas, metric = document["modes"], document["replicas"], document["metric"]

    def mean(mode: dict[str, Any], side: str, field: str) -> float | None:
        values = [summary[field] for summary in mode[side]]
        return None if None in values else fmean(values)

    def timed(seconds: float | None) -> str:
        return "not reached" if seconds is None else duration(seconds)

    name = metric.replace("_", " ")
    rows: list[tuple[str, Callable[[dict[str, Any]], str]]] = [
        ("time, 1 replica", lambda m: timed(mean(m, "one", "seconds"))),
        (f"time, {replicas} replicas", lambda m: timed(mean(m, "many", "seconds"))),
        ("speed-up", lambda m: f"{m['speed_up']:.2f}x"),
        ("efficiency", lambda m: f"{m['efficiency']:.0%}"),
        (f"{name}, 1 replica", lambda m: _metric(m, "one", metric)),
        (f"{name}, {replicas} replicas", lambda m: _metric(m, "many", metric)),
    ]
    if document["target"] is not None:
        goal = f"{document['target']:g}"
        rows += [
            (f"time to {goal}, 1 replica", lambda m: timed(mean(m, "one", "seconds_to_target"))),
            (
                f"time to {goal}, {replicas} replicas",
                lambda m: timed(mean(m, "many", "seconds_to_target")),
            ),
        ]
    rows += [
        ("largest difference of a weight", lambda m: f"{m['largest_difference']:.1e}"),
        ("identical to the bit", lambda m: "yes" if m["identical"] else "no"),
    ]
    console.table(
        f"{document['recipe']}: 1 replica against {replicas}",
        ["", *(f"{mode} mode" for mode in modes)],
        [[label, *(cell(mode) for mode in modes.values())] for label, cell in rows],
    )
    console.say(f"Accuracy test: {document['accuracy']['sentence']}.")
    verdict = document["verdict"]
    console.say(f"Verdict: {'OK' if verdict['ok'] else 'FAILED'}: {verdict['sentence']}.")
    console.say(f"Report: {report}")


def _metric(mode: dict[str, Any], side: str, metric: str) -> str:
    from statistics import fmean

    return f"{fmean(summary['metrics'][metric] for summary in mode[side]):.4f}"
