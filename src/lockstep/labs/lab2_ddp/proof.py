"""Compare a program on two processes with the program for one GPU, step by step."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from lockstep.labs.lab2_ddp.files import program, write_digits
from lockstep.labs.shared.apart import Report, separate

STEPS = 6
LIMIT = 150.0
PATIENCE = 20.0


@dataclass(frozen=True, kw_only=True)
class Proof:
    """The verdict of `lockstep convert --verify`."""

    proved: bool
    said: str
    """The comparison in words."""
    neutralised: list[str] = field(default_factory=list)
    """Sources of randomness that both runs share."""
    log: str = ""
    """The last lines of a program that failed."""


@separate(LIMIT)
def measure(report: Report, own: str) -> Proof:
    """Run `lockstep convert --verify`: compare every loss and every weight of some steps."""
    from lockstep.console import Progress
    from lockstep.convert.verify import verify

    class Told(Progress):
        """Forwards the messages to the page."""

        turn = 0

        def say(self, text: str) -> None:
            self.turn += 1
            report(min(0.9, self.turn / 3), text)

    home = Path("programs")
    home.mkdir()
    for name, text in (("train.py", program()), ("own.py", own)):
        home.joinpath(name).write_text(text)
    write_digits(home)
    verdict = verify(
        home / "train.py",
        home / "own.py",
        replicas=(2,),
        steps=STEPS,
        timeout=PATIENCE,
        working=home,
        doctor=False,
        progress=Told(),
    )
    found = verdict.comparisons[0] if verdict.comparisons else None
    return Proof(
        proved=verdict.proved,
        said=found.text if found is not None else verdict.failure,
        neutralised=verdict.neutralised,
        log=found.log if found is not None else verdict.log,
    )
