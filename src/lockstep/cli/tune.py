"""lockstep tune: choose batch size, learning rate and warmup for N replicas."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lockstep.cli.flags import Json, Margin, with_recipe_flags
from lockstep.cli.several_runs import check_runs, new_folder, write_json
from lockstep.console import Console, duration
from lockstep.errors import PlanError

if TYPE_CHECKING:
    from lockstep.engine.recipe.recipe import Recipe


@with_recipe_flags
def command(
    recipe: "Recipe",
    run: dict[str, Any],
    *,
    replicas: Annotated[
        str, typer.Option(help="Numbers of replicas to advise on; this machine need not have them.")
    ] = "1,2,4,8",
    steps: Annotated[int, typer.Option(help="Steps for which the noise scale is measured.")] = 200,
    link: Annotated[
        float | None,
        typer.Option(help="GB/s between replicas. Default: measured on this machine if possible."),
    ] = None,
    verify: Annotated[
        bool,
        typer.Option(
            "--verify",
            help="Train the original and the advised recipe, and compare their accuracy.",
        ),
    ] = False,
    seeds: Annotated[int, typer.Option(help="Seeds for --verify.")] = 3,
    margin: Margin = 0.01,
    out: Annotated[
        Path | None, typer.Option(help="Folder for the result. Default: runs/tune-RECIPE-TIME.")
    ] = None,
    json: Json = False,
) -> None:
    """Choose global batch, learning rate and warmup for each number of replicas."""
    from lockstep.cluster.launch import choose
    from lockstep.report.tuning import write_tuning_report
    from lockstep.tune import Probe, check_replicas, command_of, tune

    numbers = check_replicas(replicas)
    if steps < 10:
        raise PlanError(f"--steps {steps}: give 10 or more; 200 give a reliable estimate.")
    if link is not None and not 0 < link < float("inf"):
        raise PlanError(f"--link {link}: give gigabytes per second, above 0.")
    for name in ("micro_batch", "max_steps"):
        if run.pop(name) is not None:
            raise PlanError(f"--{name.replace('_', '-')}: tune chooses this itself. Leave it out.")
    check_runs("tune", seeds, margin)
    console = Console(as_json=json)
    device, _ = choose(run.pop("device"), 1)
    out = new_folder(out, "tune", recipe.name)
    probe = Probe(recipe, device, run, out, console)
    document = tune(probe, numbers, steps=steps, link=link, console=console)
    for advice in document["advice"]:
        advice["command"] = command_of(sys.argv[2:], advice)
    if verify:
        document["verified"] = _verify(recipe, document, probe, seeds, margin)
    report = write_tuning_report(document, out / "report.html")
    write_json(out / "tune.json", document)
    if json:
        console.emit(document | {"folder": str(out), "report": str(report)})
    else:
        _show(console, document, report)
    raise typer.Exit(0 if not verify or document["verified"]["retained"] else 1)


def _verify(
    recipe: "Recipe", document: dict[str, Any], probe: Any, seeds: int, margin: float
) -> dict[str, Any]:
    """Train the recipe as it is, and as advised for the most replicas that fit this machine."""
    from lockstep.cluster.launch import launch
    from lockstep.engine.recipe.job import Job
    from lockstep.engine.run.comparison import retained
    from lockstep.tune import followed
    from lockstep.tune.advise import devices

    here = devices(probe.device)
    possible = [a for a in document["advice"] if a["replicas"] <= here]
    if not possible:
        raise PlanError(f"--verify: this machine has {here} device(s). Add 1 to --replicas.")
    advice = possible[-1]
    numbers = range(recipe.seed, recipe.seed + seeds)
    found: dict[str, list[dict[str, Any]]] = {"one": [], "many": []}
    for seed in numbers:
        for side, base, size in (("one", recipe, 1), ("many", followed(recipe, advice), None)):
            micro = advice["micro_batch"] if size is None and advice["accumulation"] > 1 else None
            job = Job(
                recipe=replace(base, seed=seed),
                out=probe.folder / f"verify-{side}" / f"seed-{seed}",
                replicas=size or advice["replicas"],
                checkpoint_every=0,
                **(probe.options | {"micro_batch": micro}),
            )
            title = f"verify, {'as advised' if size is None else 'original'}, seed {seed}"
            found[side].append(launch(job, device=probe.device, console=probe.console, title=title))
    one, many = ([s["metrics"][recipe.metric] for s in found[side]] for side in ("one", "many"))
    verdict = retained(one, many, margin=margin, lower_is_better=recipe.lower_is_better)
    times = {side: sum(s["seconds"] for s in runs) / seeds for side, runs in found.items()}
    return verdict | {
        "replicas": advice["replicas"],
        "seeds": list(numbers),
        "margin": margin,
        "seconds": times,
        "speed_up": times["one"] / times["many"],
        "expected_speed_up": advice["speed_up"],
    }


def _show(console: Console, document: dict[str, Any], report: Path) -> None:
    noise = document["noise"]
    end = "no end" if noise["high"] is None else f"{noise['high']:,.0f}"
    console.say(
        f"Noise scale after {noise['steps']} steps: {noise['value']:,.0f} samples "
        f"({noise['low']:,.0f} to {end}); critical batch {noise['critical_batch']:,.0f}."
    )
    micro = document["micro_batch"]
    console.say(f"Largest micro-batch: {micro['largest']:,} ({micro['limit']}).")
    console.say(f"Exchange: {document['exchange']['how']}.")
    console.table(
        f"{document['recipe']}: {document['global_batch']:,} samples per step in the recipe",
        ["replicas", "global batch", "rate", "warmup", "epochs", "steps", "time", "speed-up"],
        [
            [
                f"{a['replicas']}",
                f"{a['global_batch']:,}",
                f"{a['learning_rate']:.4g}",
                f"{a['warmup']:.3g}",
                f"{a['epochs']}",
                f"{a['steps']:,}",
                duration(a["seconds"]),
                f"{a['speed_up']:.2f}x",
            ]
            for a in document["advice"]
        ],
    )
    for a in document["advice"]:
        console.say(f"{a['replicas']}: {a['why']}. Rate: {a['rule']}.")
        console.say(f"   {a['command']}")
    if "verified" in document:
        found = document["verified"]
        console.say(
            f"Verified with {found['replicas']} replicas: {found['sentence']}; "
            f"{found['speed_up']:.2f}x as fast, {found['expected_speed_up']:.2f}x expected."
        )
    console.say(f"Report: {report}")
