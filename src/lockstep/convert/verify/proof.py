"""Make all runs, and reach the verdict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import chdir
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType
from typing import TYPE_CHECKING

from lockstep.console import Progress
from lockstep.convert.verify.comparison import PRINTS, UNKNOWN, compare
from lockstep.convert.verify.runs import (
    DOUBLE,
    INSIDE,
    NUDGED,
    ORIGINAL,
    Plan,
    Program,
    Run,
    laid_out,
    scratch_of,
    started,
)
from lockstep.convert.verify.verdict import DIFFERS, EQUAL, Comparison, Verdict

AGAIN = 3
"""How often the original runs again where it is in doubt which of its numbers are times."""

if TYPE_CHECKING:
    from lockstep.doctor.findings import Finding
    from lockstep.doctor.run import Examination


def verify(
    original: Path,
    result: Path,
    *,
    arguments: tuple[str, ...] = (),
    replicas: tuple[int, ...] = (1, 2, 4),
    steps: int = 6,
    timeout: float = 60.0,
    working: Path | None = None,
    early: tuple[str, ...] = (),
    doctor: bool = True,
    progress: Progress | None = None,
) -> Verdict:
    """Prove that `result` trains as `original` does, on each number of ranks.

    Each run ends after `steps` steps of an optimizer, or after `timeout` seconds without progress.
    Scripts run in scratch folders that look like `working`, by default the current folder. `early`
    names modules that the probes install in every process, to replace missing data.
    """
    original = original.resolve()
    with TemporaryDirectory(prefix="lockstep-verify-") as folder:
        plan = Plan(
            folder=Path(folder).resolve(),
            home=original.parent,
            name=original.name,
            working=(working or Path.cwd()).resolve(),
            arguments=tuple(arguments),
            steps=steps,
            timeout=timeout,
            early=tuple(early),
        )
        proof = Proof(plan, original, progress or Progress())
        return proof.of(result.resolve(), replicas, doctor=doctor)


class Proof:
    """The two runs of the original, with which results are compared."""

    def __init__(
        self, plan: Plan, original: Path, progress: Progress, *, watched: bool = False
    ) -> None:
        progress.say(f"running {plan.name} as it is, and again to measure rounding")
        self.original = started(plan, ORIGINAL, original, 1, watched=watched)
        if self.original.by_hand:
            plan = replace(plan, folder=plan.folder / "by_hand", by_hand=True)
            plan.folder.mkdir()
            self.original = started(plan, ORIGINAL, original, 1, watched=watched)
        self.plan, self.progress, self.script, self.watched = plan, progress, original, watched
        self._turns = 0
        self.nudged = self.original
        if not self.original.failure:
            self.nudged = started(plan, NUDGED, original, 1)

    def without_rests(self) -> Proof:
        """Return a proof that leaves out the last batch of a pass if it is smaller."""
        plan = replace(self.plan, folder=self.plan.folder / "even", inside=INSIDE)
        plan.folder.mkdir()
        return Proof(plan, self.script, self.progress, watched=self.watched)

    def of(
        self,
        result: Program,
        replicas: tuple[int, ...],
        *,
        doctor: bool = True,
        known: Mapping[int, tuple[Run, Comparison]] = MappingProxyType({}),
    ) -> Verdict:
        """Return the verdict on a result. `known` holds runs of it that were made already."""
        if self.failure is not None:
            return self.failure
        verdict = Verdict()
        runs = [self.original, self.nudged]
        for number in replicas:
            if number not in known:
                self.progress.say(f"running the result on {number} process(es)")
            run, found = known.get(number) or self.on(result, number)
            runs.append(run)
            verdict.comparisons.append(found)
        said = (event["what"] for run in runs for event in run.trace.of("neutralised"))
        verdict.neutralised = list(dict.fromkeys(said))
        verdict.fake_cuda = list(dict.fromkeys(w for run in runs for w in run.trace.fake_cuda))
        verdict.fake_data = list(dict.fromkeys(w for run in runs for w in run.trace.fake_data))
        if doctor and any(not run.failure for run in runs[2:]):
            self.progress.say("the doctor checks the result on 2 ranks")
            # Without the oracle: the weights are compared, and with the same chance.
            verdict.findings = findings(self.plan, result, oracle=False)
        return verdict

    @property
    def failure(self) -> Verdict | None:
        """The verdict, if there is nothing to compare with."""
        failure = self.original.failure or self.nudged.failure
        if failure:
            return Verdict(failure=f"the original cannot be run: {failure}", log=self.nudged.log)
        if self.original.still:
            steps = len(self.original.steps)
            return Verdict(failure=f"in {steps} steps the original never changes its weights.")
        return None

    def on(self, result: Program, number: int, *, watched: bool = False) -> tuple[Run, Comparison]:
        """Run a result on a number of ranks, and compare it with the original."""
        self._turns += 1
        name = f"{self._turns}-on-{number}"
        run = started(self.plan, name, result, number, watched=watched)
        found = self._compared(self.original, self.nudged, run)
        if number == 1 and found.first is not None and found.first.what == PRINTS:
            found = self._compared(self.original, self.nudged, run, self._again)
        unknown = found.status == DIFFERS and found.reason == UNKNOWN
        if number > 1 and unknown and not self.plan.exact:
            found = self._in_double(result, number) or found
        return run, found

    def _compared(
        self, original: Run, nudged: Run, run: Run, again: Sequence[Run] = ()
    ) -> Comparison:
        losses, exact = self.plan.losses, self.plan.exact
        return compare(original, nudged, run, losses=losses, exact=exact, again=again)

    @cached_property
    def _again(self) -> list[Run]:
        """More runs of the original: two may print the same time by chance."""
        return [started(self.plan, f"again-{n}", self.script, 1) for n in range(AGAIN)]

    @cached_property
    def _double(self) -> tuple[Plan, Run, Run]:
        """Return the plan for float64, and both runs of the original under it."""
        early = (*self.plan.early, DOUBLE)
        plan = replace(self.plan, folder=self.plan.folder / "double", early=early)
        plan.folder.mkdir()
        self.progress.say(f"running {plan.name} in float64, where rounding stays small")
        both = [started(plan, name, self.script, 1) for name in (ORIGINAL, NUDGED)]
        return plan, both[0], both[1]

    def _in_double(self, result: Program, number: int) -> Comparison | None:
        """Return the comparison in float64, if the result is equal there."""
        plan, original, nudged = self._double
        if original.failure or nudged.failure:
            return None
        run = started(plan, f"{self._turns}-on-{number}", result, number)
        found = self._compared(original, nudged, run)
        found.precision = "float64"
        return found if found.status == EQUAL else None


def findings(
    plan: Plan, result: Program, replicas: int = 2, *, oracle: bool = True
) -> list[Finding]:
    """Return what the doctor finds in the result when it draws its own random numbers."""
    # Imported here, since the watched processes do not need the doctor.
    from lockstep.doctor import RULES
    from lockstep.doctor.run import examine

    script = laid_out(plan, "doctor", result)
    with chdir(scratch_of(plan, "doctor")):
        what = replace(examination(plan, script, replicas), oracle=oracle)
        found = examine(what, plan.folder / "doctor", RULES).findings
    own = result if isinstance(result, Path) else plan.home / plan.name
    return [replace(f, path=own) if f.path.name == script.name else f for f in found]


def examination(plan: Plan, script: Path, replicas: int = 2) -> Examination:
    """Return the settings of the doctor: two short passes, whose orders must differ."""
    from lockstep.doctor.run import Examination

    batches = None if plan.steps is None else max(2, plan.steps // 2)
    return Examination(
        script=script,
        arguments=plan.arguments_on(replicas),
        replicas=replicas,
        starts_itself=not plan.processes(replicas),
        steps=None if batches is None else 2 * batches,
        batches=batches,
        timeout=plan.timeout,
        gpus=replicas if plan.stand_in_gpus else None,
        early=plan.modules,
        stand_in_data=plan.stand_in_data,
    )
