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
from lockstep.convert.verify.comparison import MOST_EXPLAINED, PRINTS, UNKNOWN, VAGUE, compare
from lockstep.convert.verify.resumes import arguments_to_resume, checkpoint_of, loads_first
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
from lockstep.convert.verify.verdict import DIFFERS, EQUAL, Comparison, Difference, Verdict

CLEAR = 2
"""Steps that must be compared within a bound that proves something."""
FEW = 4
"""Batches of an evaluation of such a program."""
SLOW = 3
"""Steps to compare of a program whose steps take seconds."""
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
        if plan.further:
            # To its end, if that is near; if not, for as many steps as are compared.
            inner = replace(plan, folder=plan.folder / "whole")
            inner.folder.mkdir()
            self.original = started(inner, ORIGINAL, original, 1, watched=watched)
            plan = inner if self.original.ended else replace(plan, further=0)
            if any(self.original.trace.of("slow")):
                plan = replace(plan, steps=min(SLOW, plan.steps or SLOW), evaluated=FEW)
        if not plan.further:
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

    @property
    def slow(self) -> bool:
        """Whether the steps of the original take seconds."""
        return self.plan.evaluated == FEW

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
            compared = verdict.comparisons
            compared.append(found)
            if found.status == EQUAL and number > 1 and not any(c.resumed for c in compared):
                resumed = self._resumed(result, number)
                compared += [resumed] if resumed is not None else []
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
        late = found.first is not None and found.first.step > (self.plan.steps or 0)
        unclear = found.status == DIFFERS and (found.reason == UNKNOWN or late)
        vague = found.status == EQUAL and found.explained > MOST_EXPLAINED
        if number > 1 and (unclear or vague) and not self.plan.exact:
            # A program that is slow in float32 takes minutes for a step in float64.
            double = None if self.slow else self._in_double(result, number)
            if double is not None and (vague or double.status == EQUAL):
                found = double
            elif vague and found.clear < CLEAR:
                found.status, found.first, found.reason = DIFFERS, Difference(1, "nothing"), VAGUE
        return run, found

    def _compared(
        self,
        original: Run,
        nudged: Run,
        run: Run,
        again: Sequence[Run] = (),
        *,
        double: bool = False,
    ) -> Comparison:
        plan = self.plan
        return compare(
            original,
            nudged,
            run,
            losses=plan.losses,
            exact=plan.exact,
            converted=plan.converted,
            double=double,
            steps=plan.steps if plan.further else None,
            again=again,
        )

    def _resumed(
        self, result: Program, number: int, early: tuple[str, ...] = ()
    ) -> Comparison | None:
        """Compare runs that resume from a checkpoint of the result, if the script does that."""
        checkpoint = checkpoint_of(self.original)
        more = arguments_to_resume(self.script, checkpoint) if checkpoint else None
        if more is None or not self.plan.converted or self.slow:
            return None
        self.progress.say("resuming both from the checkpoint that the result wrote")
        folder = self.plan.folder / f"{self._turns}-resumed{len(early)}"
        plan = replace(self.plan, folder=folder, further=0, early=(*self.plan.early, *early))
        plan.folder.mkdir()
        # Shorter runs, which leave something to do.
        theirs, ours = started(plan, ORIGINAL, self.script, 1), started(plan, "on", result, number)
        if theirs.failure or ours.failure or not theirs.files.keys() & ours.files.keys():
            return None
        arguments = (*plan.arguments, *more)
        later = replace(plan, folder=plan.folder / "later", arguments=arguments)
        later.folder.mkdir()
        # Both from the checkpoint of the result: those of the two differ by rounding.
        original = started(later, ORIGINAL, self.script, 1, after=ours)
        if original.failure or original.still or not loads_first(original):
            return None
        nudged = started(later, NUDGED, self.script, 1, after=ours)
        run = started(later, "on", result, number, after=ours)
        found = self._compared(original, nudged, run, double=bool(early))
        found.resumed = True
        if found.status == DIFFERS and found.reason == UNKNOWN and not early:
            double = self._resumed(result, number, (DOUBLE,))
            if double is not None and double.status == EQUAL:
                double.precision = "float64"
                return double
        return found

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
        """Return the comparison in float64, if it can be made."""
        plan, original, nudged = self._double
        if original.failure or nudged.failure:
            return None
        run = started(plan, f"{self._turns}-on-{number}", result, number)
        found = self._compared(original, nudged, run, double=True)
        found.precision = "float64"
        return found if found.status in (EQUAL, DIFFERS) else None


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
