"""A program on two ranks, as the doctor sees it: in its source and while it runs."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from lockstep.errors import RunError
from lockstep.labs.lab2_ddp.digits_file import write_digits
from lockstep.labs.lab2_ddp.texts import program
from lockstep.labs.shared.apart import Late, Report, apart

SCRIPT = "train.py"
EPOCHS, BATCH = 2, 32
TRAIN, TEST = 128, 25
"""Samples in a check: few, so that it takes seconds; and an odd test set, as the real one is."""
RANKS = 2
PATIENCE = 25.0
"""Seconds without progress after which a run has hung."""
LIMIT = 90.0
"""Seconds of a check in all."""
TAIL = 10
"""Lines of a program's last words."""
PROBE = "lockstep.labs.lab2_ddp.device_probe"
PREPARED = "prepared.pt"
"""The file that the program makes of its data."""


@dataclass(frozen=True, kw_only=True)
class Observed:
    """What was seen."""

    ended: str
    """`finished`, `crashed`, `hung`, `late`, or `unread` for what is no Python."""
    ending: list[str] = field(default_factory=list)
    """How it ended, if not well."""
    findings: list[dict[str, Any]] = field(default_factory=list)
    """The doctor's, of source and run."""
    facts: dict[str, Any] = field(default_factory=dict)
    said: list[list[str]] = field(default_factory=list)
    """Lines with numbers that each rank printed."""
    devices: list[int | None] = field(default_factory=list)
    """The GPU that each rank sent its model to."""
    hurried: int | None = None
    """The rank that made the prepared file, and did not wait before it read it or ended."""
    norms: int = 0
    """Layers of batch norm in wrapped models that see the samples of their own rank only."""
    leaves: bool = False
    """Whether the program destroys its process group."""


def observe(text: str, *, prepared: bool = False, whole: bool = False) -> Observed:
    """Run a program on two ranks, in a scratch folder.

    `prepared`: the file that it makes first is there; `whole`: its first step is repeated on one.
    """
    try:
        compile(text, SCRIPT, "exec")
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", None)
        where = f"Line {line}: " if line else ""
        said = getattr(error, "msg", str(error))
        return Observed(ended="unread", ending=[f"{where}this is no Python, {said}."])
    try:
        given: dict[str, Any] = {
            "text": text,
            "prepared": prepared,
            "whole": whole,
            "patience": PATIENCE,
        }
        return Observed(**apart(f"{__name__}:run", limit=LIMIT, **given))
    except Late:
        ending = [
            f"After {LIMIT:.0f} seconds the program was still busy and was ended. It has "
            f"{EPOCHS} epochs of {TRAIN} images to train on: look for a loop that never ends."
        ]
        return Observed(ended="late", ending=ending)
    except RunError as error:
        return Observed(ended="crashed", ending=[str(error)])


def run(text: str, prepared: bool, whole: bool, patience: float, report: Report) -> dict[str, Any]:
    """In a process of its own, in an empty folder."""
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
    checked = check([script])
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
    return asdict(
        Observed(
            ended=found["ended"],
            ending=[
                line.replace(f"{Path.cwd()}/", "")
                for line in show.ending(found | {"last_words": found["last_words"][-TAIL:]})
                if not line.startswith("not seen")
            ],
            findings=[finding.described() for finding in (*result.findings, *source)],
            facts=found,
            said=[[e["text"] for e in rank.of("said")] for rank in result.trace.ranks],
            devices=[
                next((e["device"] for e in rank.of("placed")), None) for rank in result.trace.ranks
            ],
            hurried=next((r.number for r in result.trace.ranks if _hurries(r.events)), None),
            norms=max((e["norms"] for e in result.trace.of("wrapped")), default=0),
            leaves=any(True for p in read for _ in Training(p).methods("destroy_process_group")),
        )
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
