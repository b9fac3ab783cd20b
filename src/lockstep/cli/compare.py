"""lockstep compare: train on one replica and on N, then compare result and speed."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lockstep.cli.flags import Json, Margin, with_recipe_flags
from lockstep.cli.several_runs import check_runs, new_folder, write_json
from lockstep.console import Console, duration
from lockstep.errors import Interrupted, PlanError

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
    margin: Margin = 0.01,
    out: Annotated[
        Path | None, typer.Option(help="Folder for the runs. Default: runs/compare-RECIPE-TIME.")
    ] = None,
    json: Json = False,
) -> None:
    """Compare one replica with N: is the result the same, and is it faster?"""
    from lockstep.cluster.launch import choose, launch
    from lockstep.engine.recipe.job import Job
    from lockstep.engine.run.comparison import compare_mode, judge
    from lockstep.report.comparison import write_comparison_report

    if replicas < 2:
        raise PlanError(f"--replicas {replicas}: give 2 or more to compare with one replica.")
    check_runs("compare", seeds, margin)
    console = Console(as_json=json)
    device, _ = choose(run.pop("device"), replicas, run["share_gpu"])
    out = new_folder(out, "compare", recipe.name)
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
    write_json(out / "compare.json", document)
    if json:
        console.emit(document | {"folder": str(out), "report": str(report)})
    else:
        _show(console, document, out, report)
    raise typer.Exit(0 if document["verdict"]["ok"] else 1)


def _show(console: Console, document: dict[str, Any], out: Path, report: Path) -> None:
    modes, replicas, metric = document["modes"], document["replicas"], document["metric"]
    counts = {"one": "1 replica", "many": f"{replicas} replicas"}

    def both(label: str, get: Callable[[Any], Any], say: Callable[[float], str]) -> list[list[str]]:
        """Return a row for each side, with the means of all modes."""
        values = {s: [[get(run) for run in mode[s]] for mode in modes.values()] for s in counts}
        return [
            [
                f"{label}, {count}",
                *("not reached" if None in v else say(fmean(v)) for v in values[s]),
            ]
            for s, count in counts.items()
        ]

    def row(label: str, name: str, say: Callable[[Any], str]) -> list[str]:
        return [label, *(say(mode[name]) for mode in modes.values())]

    rows = [
        *both("time", lambda run: run["seconds"], duration),
        row("speed-up", "speed_up", "{:.2f}x".format),
        row("efficiency", "efficiency", "{:.0%}".format),
        *both(metric.replace("_", " "), lambda run: run["metrics"][metric], "{:.4f}".format),
    ]
    if document["target"] is not None:
        goal = f"time to {document['target']:g}"
        rows += both(goal, lambda run: run["seconds_to_target"], duration)
    rows.append(row("largest difference of a weight", "largest_difference", "{:.1e}".format))
    rows.append(row("identical to the bit", "identical", lambda same: "yes" if same else "no"))
    console.table(
        f"{document['recipe']}: 1 replica against {replicas}",
        ["", *(f"{mode} mode" for mode in modes)],
        rows,
    )
    console.say(f"Accuracy test: {document['accuracy']['sentence']}.")
    verdict = document["verdict"]
    console.say(f"Verdict: {'OK' if verdict['ok'] else 'FAILED'}: {verdict['sentence']}.")
    console.say(f"Report: {report}")
