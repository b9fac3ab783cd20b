"""All runs, and the verdict."""

from __future__ import annotations

from contextlib import chdir
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from lockstep.console import Progress
from lockstep.convert.verify.compare import compare
from lockstep.convert.verify.inside.kept import NUDGED, ORIGINAL
from lockstep.convert.verify.runs import Plan, Run, laid_out, scratch_of, started
from lockstep.convert.verify.verdict import Verdict

if TYPE_CHECKING:
    from lockstep.doctor.findings import Finding


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
    """Whether `result` trains as `original` does, on each number of ranks.

    Each run ends after `steps` steps of an optimizer, and is given up after `timeout` seconds
    without progress. Scripts run in scratch folders that look like `working`, the current folder
    if not given. `early` names modules that the probes install in every process, for data that
    are not there.
    """
    progress = progress or Progress()
    original, result = original.resolve(), result.resolve()
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
        progress.say(f"{original.name} is run as it is, and once more to see what rounding does")
        runs = [started(plan, ORIGINAL, original, 1, alone=True)]
        if not runs[0].failure:
            runs.append(started(plan, NUDGED, original, 1, alone=True))
        failure = next((run.failure for run in runs if run.failure), "")
        if failure:
            return Verdict(failure=f"The original cannot be run: {failure}", log=runs[-1].log)
        verdict = Verdict()
        for number in replicas:
            progress.say(f"the result is run on {number} process(es)")
            run = started(plan, f"ranks-{number}", result, number, alone=number == 1)
            verdict.comparisons.append(compare(runs[0], runs[1], run))
            runs.append(run)
        verdict.neutralised = _all(runs, "neutralised")
        verdict.stood_in = list(dict.fromkeys(w for run in runs for w in run.trace.stood_in))
        if doctor and any(not run.failure for run in runs[2:]):
            progress.say("the doctor watches the result on 2 ranks")
            verdict.findings = _findings(plan, result)
        return verdict


def _all(runs: list[Run], kind: str) -> list[str]:
    return list(dict.fromkeys(e["what"] for run in runs for e in run.trace.of(kind)))


def _findings(plan: Plan, result: Path) -> list[Finding]:
    """What the doctor sees when the result runs as it is, with its own random numbers."""
    # Here and not above: a process that is watched has no use for it.
    from lockstep.doctor import RULES
    from lockstep.doctor.run import Examination, examine

    script = laid_out(plan, "doctor", result)
    what = Examination(
        script=script,
        arguments=plan.arguments,
        replicas=2,
        steps=2 * plan.steps,
        batches=plan.steps,
        timeout=plan.timeout,
        gpus=2,
        early=plan.early,
    )
    with chdir(scratch_of(plan, "doctor")):
        found = examine(what, plan.folder / "doctor", RULES).findings
    return [replace(f, path=result) if f.path.name == script.name else f for f in found]
