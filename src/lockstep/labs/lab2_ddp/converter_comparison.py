"""Compare the learner's program with the converter's, line by line and in a run."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from statistics import median
from typing import Any

from lockstep.errors import RunError
from lockstep.labs.lab2_ddp import run_program
from lockstep.labs.lab2_ddp.files import TEST, program
from lockstep.labs.lab2_ddp.run_program import Printed
from lockstep.labs.shared.apart import Report, separate

SCRIPT = "train.py"
EPOCHS = 5
BATCHES = (32, 128)
LIMIT = 180.0
"""The time limit of all runs together, in seconds."""
ONE, OWN, CONVERTED = "one GPU", "yours", "lockstep convert"
COLUMNS = ("program on processes", "batch", "images/s", "times", "accuracy")


@dataclass(frozen=True, kw_only=True)
class Run:
    """One run of a program."""

    program: str
    processes: int
    batch: int
    """The batch of all processes together."""
    rate: float | None = None
    """Images per second of the median epoch, without the first, in which everything warms up."""
    accuracy: float | None = None
    """The accuracy after the last epoch."""
    speakers: int = 1
    """The number of ranks that print."""
    failed: str = ""


@dataclass(frozen=True, kw_only=True)
class Runs:
    """All runs and their machine."""

    device: str
    cores: int
    runs: list[dict[str, Any]] = field(default_factory=list)

    def of(self, program: str, batch: int) -> Run:
        """Return the run of a program."""
        return next(
            Run(**one) for one in self.runs if (one["program"], one["batch"]) == (program, batch)
        )

    def ratio(self, program: str, batch: int) -> float | None:
        """Return how many times as fast as on one process the program runs."""
        one, two = self.of(ONE, batch).rate, self.of(program, batch).rate
        return two / one if one and two else None


@cache
def converted_files() -> dict[str, str]:
    """Return the files that `lockstep convert` writes for the program for one GPU."""
    from lockstep.convert import Options, read_only
    from lockstep.source.reading import parse

    found = read_only(parse(Path(SCRIPT), program()), Options())
    return {path.name: text for path, text in found.files.items()}


def converted() -> str:
    """Return the converted program, without the module that it imports."""
    return converted_files()[SCRIPT]


def helpers() -> str:
    """Return the module that the converted program imports."""
    return next(text for name, text in converted_files().items() if name != SCRIPT)


@separate(LIMIT)
def measure(
    report: Report, own: str, epochs: int = EPOCHS, batches: Sequence[int] = BATCHES
) -> Runs:
    """Run the program for one GPU on one process, the learner's and the converter's on two."""
    from lockstep.world import gpus_here, hide_gpus

    device = "GPU" if gpus_here() >= 2 else "CPU"
    if device == "CPU":
        # Two processes do not fit on one GPU, so no program may use it.
        hide_gpus()
    plan = [(name, batch) for batch in batches for name in (ONE, OWN, CONVERTED)]
    # At the larger batch, the converter's program would show nothing new.
    plan = [(name, batch) for name, batch in plan if batch == batches[0] or name != CONVERTED]
    texts = {ONE: {SCRIPT: program()}, OWN: {SCRIPT: own}, CONVERTED: converted_files()}
    runs = []
    for number, (name, batch) in enumerate(plan):
        processes = 1 if name == ONE else 2
        report(number / len(plan), f"{name}, {processes} process(es), batch {batch}")
        arguments = ("--epochs", str(epochs), "--batch-size", str(batch))
        found = run_program.run(Path(f"run{number}"), texts[name], processes, arguments)
        ran = _run(name, processes, batch, found)
        if name != OWN and (ran.failed or ran.rate is None):
            raise RunError(f"{name}, batch {batch}, did not run here: {ran.failed or 'no output'}")
        runs.append(asdict(ran))
    return Runs(device=device, cores=os.cpu_count() or 1, runs=runs)


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


def rows(found: Runs) -> list[list[str]]:
    """Return the rows of the table."""
    lines = []
    for one in (Run(**run) for run in found.runs):
        ratio = found.ratio(one.program, one.batch)
        lines.append(
            [
                f"{one.program} on {one.processes}",
                str(one.batch),
                "-" if one.rate is None else f"{one.rate:,.0f}",
                "-" if ratio is None else f"{ratio:.2f}",
                "-" if one.accuracy is None else f"{one.accuracy:.4f}",
            ]
        )
    return lines


def remarks(found: Runs) -> list[str]:
    """Return remarks that explain the numbers."""
    said = []
    for one in (Run(**run) for run in found.runs):
        name = f"{one.program}, batch {one.batch}"
        if one.failed:
            said.append(f"{name}: {one.failed}")
        elif one.speakers != 1:
            said.append(f"{name}: {one.speakers} ranks print; the table shows the first.")
    known = [one["accuracy"] for one in found.runs if one["accuracy"] is not None]
    if len(known) > 1:
        apart = max(known) - min(known)
        said.append(
            f"The accuracies lie within {apart:.4f}, {round(apart * TEST)} of {TEST} images: each "
            "run draws a different order and dropout."
        )
    if found.device == "CPU":
        said.append(
            f"Here two processes share {found.cores} cores with everything else on this machine, "
            "and the exchange takes computing time from both. GPUs exchange while they compute."
        )
    return said
