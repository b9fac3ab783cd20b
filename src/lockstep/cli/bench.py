"""lockstep bench: compare lockstep with its peers on this machine."""

import shlex
import sys
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lockstep.cli.flags import Json
from lockstep.cli.several_runs import write_json
from lockstep.console import Console, LiveProgress, reserved_output
from lockstep.errors import Interrupted, UsageError
from lockstep.world import launched, writable

if TYPE_CHECKING:
    from lockstep.bench.entries import Entry
    from lockstep.bench.measure import Settings
    from lockstep.bench.works import Work


def command(
    works: Annotated[
        list[str] | None, typer.Argument(help="What to train. Default: all that suit this device.")
    ] = None,
    *,
    sides: Annotated[
        str | None,
        typer.Option(help="Sides, separated by commas. SIDE@1 runs on one replica. Default: all."),
    ] = None,
    replicas: Annotated[
        int | None, typer.Option(help="Processes per side. Default: all GPUs, or 1.")
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    rounds: Annotated[int, typer.Option(help="Turns per side.")] = 5,
    steps: Annotated[
        int, typer.Option(help="Steps in a turn. 0: as many as take about 1.5 s.")
    ] = 0,
    warmup: Annotated[
        float, typer.Option(help="Seconds that each side trains before its first turn.")
    ] = 3.0,
    precision: Annotated[
        str | None,
        typer.Option(help="fp32, tf32 or bf16. Default: fp32 on the CPU, the work's own on a GPU."),
    ] = None,
    speed: Annotated[
        str, typer.Option(help="How lockstep executes a step: auto, eager, compile or graph.")
    ] = "auto",
    save: Annotated[Path | None, typer.Option(help="Write the result to this JSON file.")] = None,
    markdown: Annotated[
        bool, typer.Option("--markdown", help="Print a Markdown table that names the machine.")
    ] = False,
    json: Json = False,
) -> None:
    """Compare the speed of lockstep and its peers on the same work."""
    _one_of("--device", device, ("auto", "cpu", "cuda"))
    _one_of("--precision", precision or "fp32", ("fp32", "tf32", "bf16"))
    _one_of("--speed", speed, ("auto", "eager", "compile", "graph"))
    for flag, number, least in (("--rounds", rounds, 1), ("--steps", steps, 0)):
        if number < least:
            raise UsageError(f"{flag} {number}: give {least} or more.")
    if not 0 <= warmup < float("inf"):
        raise UsageError(f"--warmup {warmup}: give a number of seconds, 0 or more.")
    if replicas is not None and replicas < 1:
        raise UsageError(f"--replicas {replicas}: give 1 or more.")
    if save is not None and not save.resolve().parent.is_dir():
        raise UsageError(f"--save {save}: its folder does not exist. Make it first.")
    if save is not None and (save.is_dir() or not writable(save)):
        raise UsageError(
            f"--save {save}: this cannot be written. Name a file in a folder that you can write to."
        )
    if launched() is not None:
        raise UsageError("bench starts its replicas itself: run it without torchrun.")
    console = Console(as_json=json)
    with reserved_output(json):
        from lockstep.bench.entries import check_replicas, default_entries, parse_entries
        from lockstep.bench.measure import Settings
        from lockstep.cluster.launch import choose

        kind, replicas = choose(device, replicas)
        chosen = _works(works, kind)
        if sides is None:
            entries, missing = default_entries(replicas, kind)
            if missing:
                console.say(
                    f"Not installed, so left out: {', '.join(missing)} "
                    "(pip install 'lockstep[bench]')."
                )
        else:
            entries = parse_entries(sides, replicas)
            choose(kind, max(entry.replicas for entry in entries))
        check_replicas(entries)
        settings = Settings(
            device=kind,
            rounds=rounds,
            steps=steps,
            warmup=warmup,
            precision=precision,  # type: ignore[arg-type]  # checked above
            speed=speed,  # type: ignore[arg-type]  # checked above
        )
        document = _measure(console, chosen, entries, settings)
        _tell(console, document, save, markdown)
    if document["stopped"]:
        raise Interrupted("Stopped. The finished rounds are above.")
    failed = [s for work in document["works"] for s in work["sides"].values() if s["error"]]
    raise typer.Exit(1 if failed else 0)


def _one_of(flag: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise UsageError(f"{flag} {value}: known are {', '.join(known)}.")


def _works(names: list[str] | None, device: str) -> "list[Work]":
    from lockstep.bench.works import WORKS

    for name in names or ():
        if name not in WORKS:
            raise UsageError(f"there is no work {name!r}. Known: {', '.join(WORKS)}.")
    if names:
        return [WORKS[name] for name in names]
    return [work for work in WORKS.values() if device in work.devices]


def _command(arguments: list[str]) -> str:
    """Return the command as typed, without the flags that choose the output.

    >>> _command(["bench", "mlp", "--json", "--save", "a.json", "--rounds", "2"])
    'lockstep bench mlp --rounds 2'
    """
    kept = []
    for before, argument in zip(["", *arguments], arguments, strict=False):
        output = argument in ("--json", "--markdown", "--save") or argument.startswith("--save=")
        if not output and before != "--save":
            kept.append(argument)
    return shlex.join(["lockstep", *kept])


def _measure(
    console: Console, works: "list[Work]", entries: "list[Entry]", settings: "Settings"
) -> dict[str, Any]:
    from lockstep.bench.machine import facts
    from lockstep.bench.measure import Stopped, measure
    from lockstep.processes.signals import stop_as_interrupt

    progress = LiveProgress(console, "bench", still=True)
    turns = count(1)
    measured, stopped = [], False
    progress.begin(len(works) * len(entries) * (1 + settings.rounds), 0, 1)
    try:
        with stop_as_interrupt():
            for work in works:
                measured.append(
                    measure(work, entries, settings, lambda _: progress.step(next(turns)))
                )
    except Stopped as error:
        measured.append(error.document)
        stopped = True
    except KeyboardInterrupt:
        if not measured:
            raise Interrupted(
                "Stopped before a round was complete, so there is no result."
            ) from None
        stopped = True
    finally:
        progress.end()
    return {
        "command": _command(sys.argv[1:]),
        "machine": facts(),
        "device": settings.device,
        "rounds": settings.rounds,
        "speed": settings.speed,
        "works": measured,
        "stopped": stopped,
    }


def _tell(console: Console, document: dict[str, Any], save: Path | None, as_markdown: bool) -> None:
    from lockstep.bench import machine, table

    if save is not None:
        write_json(save, document)
    if console.as_json:
        console.emit(document)
    elif as_markdown:
        console.say(table.markdown(document))
    else:
        for work in document["works"]:
            console.table(work["sentence"], table.columns(work), table.rows(work))
        console.say(machine.name(document["machine"], document["device"]))
