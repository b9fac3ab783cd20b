"""Observe a program on two ranks with the doctor: its source and its run."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lockstep.errors import RunError
from lockstep.labs.lab2_ddp.files import program, write_digits
from lockstep.labs.shared.apart import Late, Report, apart, quiet

SCRIPT = "train.py"
EPOCHS, BATCH = 2, 32
TRAIN, TEST = 128, 25
"""Samples in a check: few, so that it takes seconds, and an odd test set like the real one."""
RANKS = 2
PATIENCE = 25.0
"""A run without progress for this many seconds has hung."""
LIMIT = 90.0
"""The time limit of a check, in seconds."""
TAIL = 10
"""How many of the last lines of a failed program to keep."""
PROBE = "lockstep.labs.lab2_ddp.device_probe"
PREPARED = "prepared.pt"
"""The file of prepared data that the program makes."""


@dataclass(frozen=True, kw_only=True)
class Observed:
    """The observations of a program."""

    ended: str
    """`finished`, `crashed`, `hung`, `late`, or `unread` if it is not Python."""
    ending: list[str] = field(default_factory=list)
    """Lines about the end of the program, if it failed."""
    findings: list[dict[str, Any]] = field(default_factory=list)
    """The doctor's findings in the source and the run."""
    facts: dict[str, Any] = field(default_factory=dict)
    said: list[list[str]] = field(default_factory=list)
    """The lines with numbers that each rank printed."""
    devices: list[int | None] = field(default_factory=list)
    """The GPU that each rank sent its model to."""
    hurried: int | None = None
    """The rank that made the prepared file but then waited for no other rank."""
    norms: int = 0
    """Batch-norm layers in wrapped models that see only the samples of their own rank."""
    leaves: bool = False
    """Whether the program destroys its process group."""


def observe(text: str, *, prepared: bool = False, whole: bool = False) -> Observed:
    """Run a program on two ranks, in a scratch folder.

    `prepared` puts the prepared file there first; `whole` repeats the first step on one process.
    """
    try:
        compile(text, SCRIPT, "exec")
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", None)
        where = f"Line {line}: " if line else ""
        said = getattr(error, "msg", str(error))
        return Observed(ended="unread", ending=[f"{where}this is not Python: {said}."])
    try:
        given = {"prepared": prepared, "whole": whole, "patience": PATIENCE}
        return Observed(**apart(f"{__name__}:run", quiet, limit=LIMIT, text=text, **given))
    except Late:
        ending = [
            f"The lab stopped the program, which was still busy after {LIMIT:.0f} seconds. It "
            f"should train {EPOCHS} epochs of {TRAIN} images: look for a loop that never ends."
        ]
        return Observed(ended="late", ending=ending)
    except RunError as error:
        return Observed(ended="crashed", ending=[str(error)])


def run(text: str, prepared: bool, whole: bool, patience: float, report: Report) -> Observed:
    """Run and observe a program; called in a separate process, in an empty folder."""
    from lockstep.doctor import RULES, check
    from lockstep.doctor import output as show
    from lockstep.doctor.facts import facts
    from lockstep.doctor.run import Examination, acquitted, examine
    from lockstep.source.programs import programs
    from lockstep.source.training import Training
    from lockstep.world import gpus_here

    script = Path(SCRIPT)
    script.write_text(text)
    write_digits(Path(), TRAIN, TEST)
    if prepared:
        names: dict[str, Any] = {"__name__": "program"}
        exec(compile(program(), SCRIPT, "exec"), names)
        names["prepare"]()
    checked = check([script], RULES)
    enough = gpus_here() >= RANKS
    what = Examination(
        script=script,
        arguments=("--epochs", str(EPOCHS), "--batch-size", str(BATCH)),
        replicas=RANKS,
        steps=None,
        timeout=patience,
        gpus=None if enough else RANKS,
        real_gpus=enough,
        oracle=whole,
        early=(PROBE,),
    )
    result = examine(what, Path("notes"), RULES)
    shown = {finding.rule.code for finding in result.findings}
    source = [
        finding
        for finding in checked.findings
        if finding.rule.code not in shown and not acquitted(finding, result.trace)
    ]
    found = facts(result)
    read = programs(list(checked.scripts.values()))
    ranks = result.trace.ranks
    return Observed(
        ended=found["ended"],
        ending=[
            line.replace(f"{Path.cwd()}/", "")
            for line in show.ending(found | {"last_words": found["last_words"][-TAIL:]})
            if not line.startswith("not seen")
        ],
        findings=[finding.described() for finding in (*result.findings, *source)],
        facts=found,
        said=[[e["text"] for e in rank.of("said")] for rank in ranks],
        devices=[next((e["device"] for e in rank.of("placed")), None) for rank in ranks],
        hurried=next((rank.number for rank in ranks if _hurries(rank.events)), None),
        norms=max((e["norms"] for e in result.trace.of("wrapped")), default=0),
        leaves=any(True for p in read for _ in Training(p).methods("destroy_process_group")),
    )


def _hurries(events: list[dict[str, Any]]) -> bool:
    made = False
    for event in events:
        prepared = Path(event.get("path", "")).name == PREPARED
        if made and event["kind"] in ("collective", "group"):
            return False
        if made and prepared and event["kind"] == "loaded":
            return True
        made = made or (prepared and event["kind"] == "wrote")
    return made
