"""lockstep assess: write the task, grade it, certify the result."""

from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lockstep.cli.flags import Json
from lockstep.console import Console, LiveProgress
from lockstep.errors import AssessError

if TYPE_CHECKING:
    from lockstep.assess.grade import Grade
    from lockstep.assess.starter import Task

app = typer.Typer(
    help="Take the assessment: get a task, have it graded with explanations, earn a signed "
    "certificate.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
)
MOST_REPLICAS = 64
MARKS = {True: "passed", False: "FAILED", None: "-"}


@app.command()
def start(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A new or empty folder.")],
    data: Annotated[
        str, typer.Option(help="digits, cifar10, auto, or a folder that holds CIFAR-10.")
    ] = "auto",
    replicas: Annotated[
        int | None, typer.Option(help="Number of processes; default: one per GPU, at least 2.")
    ] = None,
    minutes: Annotated[float | None, typer.Option(help="Time limit in minutes.")] = None,
    name: Annotated[str, typer.Option(help="Name of the learner.")] = "",
) -> None:
    """Write the task: a program for one device, instructions and a time limit."""
    from lockstep.assess.starter import start as write_task

    if minutes is not None and not 0 < minutes < 1e6:
        raise AssessError(f"--minutes {minutes:g}: give more than 0 minutes.")
    number = _replicas(replicas)
    kind, source = _data(data)
    task = write_task(
        folder, data=kind, replicas=number, minutes=minutes, name=_name(name), source=source
    )
    Console().lines(
        [
            f"{folder} holds the task: make train.py run on {number} replicas. You have "
            f"{task.minutes:g} minutes.",
            f"Read {folder / 'README.md'}, edit train.py, then run: lockstep assess grade {folder}",
        ]
    )


@app.command()
def grade(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The folder of the task.")],
    key: Annotated[
        Path | None, typer.Option(help="An instructor's key; without it, you grade yourself.")
    ] = None,
    name: Annotated[str, typer.Option(help="Name on the certificate.")] = "",
    replicas: Annotated[
        int | None, typer.Option(help="Number of processes; default: that of the task.")
    ] = None,
    data: Annotated[
        Path | None, typer.Option(help="Folder with CIFAR-10, if the task uses it.")
    ] = None,
    json: Json = False,
) -> None:
    """Run the program, check it, and write the certificate when every check passes."""
    from lockstep.assess import history
    from lockstep.assess.grade import Grading
    from lockstep.assess.grade import grade as graded
    from lockstep.assess.keys import private_key
    from lockstep.assess.starter import read_task

    task = read_task(folder)
    number = _replicas(task.replicas if replicas is None else replicas)
    signer = None if key is None else private_key(key)
    who = _name(name) or task.name
    console = Console(as_json=json)
    progress = LiveProgress(console, "grading, epochs")
    exam = task.exam
    source = data or (None if task.folder is None else Path(task.folder))
    progress.begin(exam.epochs + 5 * exam.speed_epochs, 0, 0)
    try:
        result = graded(folder, Grading(exam=exam, replicas=number, source=source), progress)
    finally:
        progress.end()
    line = history.attempt(result, task, who)
    history.append(folder, line)
    _keep_labs(folder)
    written = _certify(folder, result, task, who, signer, console) if result.passed else []
    if json:
        console.emit(line | {"certificate": [str(path) for path in written]})
    else:
        _show(console, result, line, written)
    raise typer.Exit(0 if result.passed else 1)


def _keep_labs(folder: Path) -> None:
    """Write the learner's progress in the labs, for the instructor's summary."""
    from lockstep.engine.run.atomic_write import replace_file
    from lockstep.labs.shared.progress import Progress

    progress = Progress()
    if progress.path.exists():
        text = dumps(progress.outline(), indent=1) + "\n"
        replace_file(folder / "progress.json", text.encode())


def _certify(
    folder: Path, result: "Grade", task: "Task", who: str, signer: Any, console: Console
) -> list[Path]:
    """Write the certificate; a missing font gives a warning and does not lose the grading."""
    from lockstep.assess.certificate import payload_of, write
    from lockstep.assess.keys import own_key, raw

    try:
        own = own_key(make=signer is None)
        chosen = own if signer is None else signer
        assert chosen is not None, "no key was given, so one was made"
        # Naming this machine's own key with --key does not make an instructor.
        taught = own is None or raw(own.public_key()) != raw(chosen.public_key())
        payload = payload_of(result, task, who, by_instructor=taught)
        return write(folder, payload, chosen)
    except AssessError as error:
        console.warn(f"all checks passed, but lockstep could not write the certificate: {error}")
        return []


def _show(console: Console, result: "Grade", line: dict[str, Any], written: list[Path]) -> None:
    from lockstep.assess.checks import CHECKS

    lines = [""]
    for check in CHECKS:
        verdict = result.verdicts[check.name]
        lines.append(f"{MARKS[verdict.passed]:>7}  {check.title}: {verdict.reason}.")
        lines += [f"           | {detail}" for detail in verdict.details]
    if result.advice:
        lines += ["", "The doctor found:", *(f"  {advice}" for advice in result.advice)]
    lines += [f"Note: {note}." for note in result.notes]
    time = "in time" if line["in_time"] else "late"
    lines += ["", f"{result.score} of {len(result.verdicts)} checks passed; {time}."]
    if written:
        lines.append(f"Certificate: {', '.join(map(str, written))}")
    console.lines(lines)


def _of_this_machine() -> bytes:
    from lockstep.assess import keys
    from lockstep.errors import Refused

    own = keys.own_key(make=False)
    if own is None:
        raise Refused(
            "this machine has no key to check it with. Give the instructor's key with "
            "--public-key FILE."
        )
    return keys.raw(own.public_key())


@app.command()
def verify(
    file: Annotated[Path, typer.Argument(help="certificate.svg or certificate.pdf.")],
    public_key: Annotated[
        Path | None,
        typer.Option(
            "--public-key", help="The instructor's .pub file; default: this machine's key."
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Check that a certificate is genuine, unchanged and not expired."""
    from lockstep.assess import keys
    from lockstep.assess.signature import opened
    from lockstep.assess.signature import verify as verified
    from lockstep.errors import Refused

    try:
        content = file.read_bytes()
    except OSError as error:
        raise AssessError(f"{file} cannot be read: {error.strerror}.") from None
    given = None if public_key is None else keys.raw(keys.public_key(public_key))
    console = Console(as_json=json)
    try:
        opened(content)
        found = verified(content, given or _of_this_machine(), own=given is None)
    except AssessError as error:
        raise AssessError(f"{file} {error}") from None
    except Refused as error:
        if json:
            console.emit({"valid": False, "why": str(error)})
            raise typer.Exit(1) from None
        raise Refused(f"{file} is refused: {error}") from None
    if json:
        console.emit({"valid": True, "key": found.by, **found.payload})
        return
    said = found.payload
    who = f"this machine's own key, {found.by}" if given is None else f"{public_key} ({found.by})"
    if given is None or said["by"] != "instructor":
        who += ": self-graded"
    late = "" if said["in_time"] else ", late"
    console.lines(
        [
            f"{file} is valid.",
            f"  who    {said['name']}",
            f"  what   {said['data']} on {said['replicas']} replicas ({said['machine']}): "
            f"{said['score']} of {said['of']} checks, accuracy {said['accuracy']}, "
            f"{said['gain']} times as fast{late}",
            f"  when   {said['graded'][:10]}, until {said['expires'][:10]}",
            f"  by     {who}",
        ]
    )


@app.command()
def summary(
    folder: Annotated[Path, typer.Argument(help="The folder with one folder per learner.")],
    public_key: Annotated[
        Path | None, typer.Option("--public-key", help="Count only certificates of this key.")
    ] = None,
    json: Json = False,
) -> None:
    """Show for each learner: attempts, best score, failing checks, certificate, labs."""
    from lockstep.assess import keys
    from lockstep.assess.summary import summary as summarised

    trusted = None if public_key is None else keys.raw(keys.public_key(public_key))
    rows = summarised(folder, trusted)
    console = Console(as_json=json)
    if json:
        console.emit(rows)
        return
    columns = ["learner", "tries", "best", "fails", "in time", "certificate", "labs"]
    console.table("", [*columns, "last"], [_row(row) for row in rows])
    for row in rows:
        for problem in row["problems"]:
            console.warn(f"{row['folder']}: {problem}")


def _row(row: dict[str, Any]) -> list[str]:
    best, certificate = row["best"], row["certificate"]
    valid = "-"
    if certificate is not None:
        by = "self-graded" if certificate["by"] == "self" else "instructor"
        valid = f"{by}, {certificate['key']}" if certificate["valid"] else "refused"
    labs = [
        f"{number}: {lab['done']}/{lab['tasks']}" + (f", quiz {lab['quiz']}" if lab["quiz"] else "")
        for number, lab in (row["labs"] or {}).items()
    ]
    return [
        f"{row['name']} ({row['folder']})" if row["name"] else row["folder"],
        str(row["attempts"]),
        "-" if best is None else f"{best['score']}/{best['of']}",
        ", ".join(row["failing"]) or "-",
        {None: "-", True: "yes", False: "late"}[row["in_time"]],
        valid,
        "; ".join(labs) or "-",
        (row["last"] or "-")[:10],
    ]


@app.command()
def key(
    file: Annotated[
        Path, typer.Argument(help="Where to write it; the public key goes to FILE.pub.")
    ],
) -> None:
    """Make an instructor's key pair."""
    from lockstep.assess import keys

    made, public = keys.new_pair(file)
    mark = keys.fingerprint(keys.raw(made.public_key()))
    Console().lines(
        [
            f"Keep {file} secret: it signs certificates. Publish {public} ({mark}) to check them.",
            f"Grade with: lockstep assess grade DIR --key {file}",
        ]
    )


def _replicas(given: int | None) -> int:
    from lockstep.world import gpus_here

    if given is None:
        return max(2, gpus_here())
    if not 2 <= given <= MOST_REPLICAS:
        raise AssessError(f"--replicas {given}: give a number from 2 to {MOST_REPLICAS}.")
    return given


def _data(given: str) -> tuple[str, Path | None]:
    """Return the kind of data and its folder."""
    from lockstep.assess.dealt_data import find_cifar10
    from lockstep.errors import DataError
    from lockstep.world import gpus_here

    if given == "digits":
        return "digits", None
    if given in ("auto", "cifar10"):
        try:
            find_cifar10()
        except DataError:
            if given == "cifar10":
                raise
            return "digits", None
        # Without a GPU an epoch takes many minutes.
        return ("cifar10" if given == "cifar10" or gpus_here() else "digits"), None
    if not Path(given).is_dir():
        raise AssessError(
            f"--data {given}: give digits, cifar10, auto, or a folder that holds CIFAR-10."
        )
    return "cifar10", find_cifar10(Path(given))


def _name(given: str) -> str:
    from lockstep.assess.certificate import checked_name

    return checked_name(given) if given else ""
