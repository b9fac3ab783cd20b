"""The learner's program and the converter's: line by line, and in a run on two processes."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass, field
from difflib import unified_diff
from functools import cache
from pathlib import Path
from statistics import median
from typing import Any

from lockstep.labs.ddp.apart import Document, Report, apart
from lockstep.labs.ddp.data import write_digits
from lockstep.labs.ddp.lines import Printed, printed
from lockstep.labs.ddp.texts import program

SCRIPT = "train.py"
EPOCHS = 5
BATCHES = (32, 128)
PATIENCE = 20.0
LIMIT = 150.0
ONE, OWN, CONVERTED = "one GPU", "yours", "lockstep convert"


@dataclass(frozen=True, kw_only=True)
class Run:
    """A program on some processes."""

    program: str
    processes: int
    batch: int
    """Of all processes together."""
    rate: float | None = None
    """Images per second, the median epoch; the first one, in which all warms up, left out."""
    accuracy: float | None = None
    """After the last epoch."""
    speakers: int = 1
    """Ranks that print."""
    failed: str = ""


@dataclass(frozen=True, kw_only=True)
class Runs:
    """All of them, with where they ran."""

    device: str
    cores: int
    runs: list[dict[str, Any]] = field(default_factory=list)

    def of(self, program: str, batch: int) -> Run:
        """The run of a program."""
        return next(
            Run(**one) for one in self.runs if (one["program"], one["batch"]) == (program, batch)
        )

    def ratio(self, program: str, batch: int) -> float | None:
        """How many times as fast as on one process it is."""
        one, two = self.of(ONE, batch).rate, self.of(program, batch).rate
        return two / one if one and two else None


@cache
def converted() -> str:
    """What `lockstep convert` makes of the program for one GPU."""
    from lockstep.convert import convert
    from lockstep.source.reading import parse

    return convert(parse(Path(SCRIPT), program())).text


def difference(own: str) -> str:
    """From the learner's program to the converter's, as a unified diff."""
    lines = unified_diff(
        own.splitlines(), converted().splitlines(), OWN, CONVERTED, n=2, lineterm=""
    )
    return "\n".join(lines)


def measure(report: Report, own: str) -> Runs:
    """Run the program for one GPU on one process, the learner's and the converter's on two."""
    given = {"own": own, "epochs": EPOCHS, "batches": list(BATCHES)}
    return Runs(**apart(f"{__name__}:compare", given, limit=LIMIT, report=report))


def compare(own: str, epochs: int, batches: list[int], report: Report) -> Document:
    """In a process of its own."""
    from lockstep.world import gpus_here

    plan = [(name, batch) for batch in batches for name in (ONE, OWN, CONVERTED)]
    # At the larger batch the converter's has nothing new to say.
    plan = [(name, batch) for name, batch in plan if batch == batches[0] or name != CONVERTED]
    texts = {ONE: program(), OWN: own, CONVERTED: converted()}
    runs = []
    for number, (name, batch) in enumerate(plan):
        processes = 1 if name == ONE else 2
        report(number / len(plan), f"{name}, {processes} process(es), batch {batch}")
        arguments = ("--epochs", str(epochs), "--batch-size", str(batch))
        found = started(Path(f"run{number}"), texts[name], processes, arguments)
        runs.append(asdict(_run(name, processes, batch, found)))
    device = "GPU" if gpus_here() >= 2 else "CPU"
    return asdict(Runs(device=device, cores=os.cpu_count() or 1, runs=runs))


def started(
    folder: Path, text: str, processes: int, arguments: tuple[str, ...]
) -> tuple[list[Printed], str]:
    """What each process printed, and why it failed if it did. Nobody watches: that takes time."""
    from lockstep.probes.settings import Settings
    from lockstep.probes.start import Job, run
    from lockstep.world import gpus_here

    folder.mkdir()
    notes = folder / "notes"
    notes.mkdir()
    script = folder / SCRIPT
    script.write_text(text)
    write_digits(folder)
    outcome = run(
        Job(
            script=Path(SCRIPT),
            arguments=arguments,
            ranks=0 if processes == 1 else processes,
            settings=Settings(folder=str(notes.resolve()), watch=False),
            timeout=PATIENCE,
            folder=folder,
            on_gpus=gpus_here() >= 2,
        )
    )
    said = [log.read_text(errors="replace") for log in outcome.logs]
    failed = ""
    if outcome.how != "finished":
        words = [text.strip().splitlines()[-1] for text in said if text.strip()]
        failed = f"{outcome.how}: {words[0] if words else 'it said nothing'}"
    return [printed(text) for text in said], failed


def _run(name: str, processes: int, batch: int, found: tuple[list[Printed], str]) -> Run:
    said, failed = found
    first = said[0]
    return Run(
        program=name,
        processes=processes,
        batch=batch,
        rate=round(median(first.rates[1:] or first.rates), 1) if first.rates else None,
        accuracy=first.accuracies[-1] if first.accuracies else None,
        speakers=sum(bool(one.rates or one.accuracies) for one in said),
        failed=failed,
    )
