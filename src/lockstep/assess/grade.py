"""Grade a submission: run it, recount its accuracy, compare its speed, and judge it."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from lockstep.assess import submission as submissions
from lockstep.assess.checks import CHECKS, every_sample, judged
from lockstep.assess.dealt_data import Samples, deal
from lockstep.assess.evidence import Evidence, Verdict, failed, unjudged
from lockstep.assess.exam import Exam
from lockstep.assess.observed_run import Watched, watched
from lockstep.assess.proctor import Request
from lockstep.assess.recount import Recount, recount
from lockstep.assess.submission import PROGRAM, Submission
from lockstep.assess.supervise import RunResult, supervise
from lockstep.assess.timing import LEAST, Times, between, decided
from lockstep.assess.witness import UNTRAINED
from lockstep.console import Progress
from lockstep.errors import SourceError
from lockstep.world import gpus_here


@dataclass(frozen=True, kw_only=True)
class Grading:
    """The settings of a grading."""

    exam: Exam
    replicas: int = 2
    seed: int | None = None
    """Splits the samples and goes to the program; None draws a new one."""
    source: Path | None = None
    """The folder with CIFAR-10, if the cache does not hold it."""
    speed: bool = True
    oracle: bool = True
    timeout: float = 60.0
    """How long a run may make no progress before it counts as hung, in seconds."""


@dataclass(frozen=True, kw_only=True)
class Grade:
    """The outcome of a grading."""

    exam: Exam
    replicas: int
    seed: int
    verdicts: dict[str, Verdict]
    accuracy: float | None = None
    """The recounted accuracy of the last epoch."""
    gain: float | None = None
    """How many times as fast as on one device the program is."""
    advice: tuple[str, ...] = ()
    """The doctor's findings."""
    notes: tuple[str, ...] = ()
    on_gpus: bool = False
    evidence: Evidence | None = field(default=None, repr=False, compare=False)

    @property
    def passed(self) -> bool:
        """Whether every check passed."""
        return all(verdict.passed for verdict in self.verdicts.values())

    @property
    def score(self) -> int:
        """The number of checks that passed."""
        return sum(verdict.passed is True for verdict in self.verdicts.values())

    def described(self) -> dict[str, Any]:
        """Return the grade as plain data, for --json and the history."""
        return {
            "passed": self.passed,
            "score": self.score,
            "of": len(self.verdicts),
            "data": self.exam.data,
            "replicas": self.replicas,
            "on_gpus": self.on_gpus,
            "seed": self.seed,
            "accuracy": self.accuracy,
            "gain": self.gain,
            "checks": {name: asdict(verdict) for name, verdict in self.verdicts.items()},
            "advice": list(self.advice),
            "notes": list(self.notes),
        }


class Grader:
    """One grading, with its data, its scratch folder and its runs."""

    def __init__(self, how: Grading, scratch: Path, progress: Progress) -> None:
        self.how, self.scratch, self.progress = how, scratch, progress
        self.seed = secrets.randbelow(2**31) if how.seed is None else how.seed
        self.samples: Samples = deal(how.exam, self.seed, how.source)
        self.on_gpus = how.replicas > 1 and gpus_here() >= how.replicas
        self.runs = self.epochs = 0

    def run(
        self, files: Mapping[str, bytes], *, epochs: int, replicas: int, oracle: bool = False
    ) -> RunResult:
        """Run a program in a fresh folder with a fresh copy of the data and the grader's model."""
        place = self.scratch / f"run-{self.runs}"
        self.runs += 1
        work, out, data = place / "work", place / "out", place / "data.npz"
        for name, content in {**files, "model.py": self.how.exam.model.encode()}.items():
            (work / name).parent.mkdir(parents=True, exist_ok=True)
            (work / name).write_bytes(content)
        self.samples.write(data)
        given = {"data": data, "epochs": epochs, "seed": self.seed % 2**31, "out": out}
        request = Request(
            work=work,
            scratch=place / "scratch",
            arguments=tuple(w for name in given for w in (f"--{name}", str(given[name]))),
            out=out,
            replicas=replicas,
            seconds=self.how.exam.seconds,
            timeout=self.how.timeout,
            oracle=oracle,
            on_gpus=self.on_gpus,
        )
        result = supervise(request, lambda done: self.progress.step(self.epochs + done))
        self.epochs += epochs
        return result

    def seen(self, result: RunResult, exam: Exam) -> Evidence:
        """Collect the evidence of a run of the submission."""
        request = result.request
        counts: dict[int, Recount] = {}
        for epoch in range(1, exam.epochs + 1):
            path = request.out / f"epoch-{epoch}.pt"
            if path.is_file() and not path.is_symlink():
                counts[epoch] = recount(path, exam, self.samples, on_gpus=self.on_gpus)
        untrained = request.notes / "ranks" / UNTRAINED
        return Evidence(
            exam=exam,
            replicas=self.how.replicas,
            samples=self.samples,
            result=result,
            watched=Watched(0, [], [])
            if result.trace is None
            else watched(result.trace, self.samples, request.out, request.scratch.parent),
            recounts=counts,
            untrained=recount(untrained, exam, self.samples) if untrained.is_file() else None,
        )

    def timed(self, submission: Submission, first: RunResult) -> Times:
        """Time the submission, the given program and the reference in turns, until it is clear."""
        exam = self.how.exam
        times = Times(submission=between(first.appeared))
        while True:
            times.rounds += 1
            self.progress.say(f"comparing speeds, round {times.rounds}")
            if times.rounds > LEAST:
                self.progress.end()
                self.progress.begin(self.epochs + 3 * exam.speed_epochs, self.epochs, 0)
            if times.rounds > 1:
                times.submission += self.again(submission)
            for text, replicas, seconds in (
                (exam.program, 1, times.single),
                (exam.reference, self.how.replicas, times.reference),
            ):
                files = {PROGRAM: text.encode()}
                result = self.run(files, epochs=exam.speed_epochs, replicas=replicas)
                seconds += between(result.appeared)
                times.waited.append(result.waited)
            if not times.complete or decided(times, exam.share):
                return times

    def again(self, submission: Submission) -> list[float]:
        """Return the seconds of each epoch in another run, or nothing if it skips samples.

        A program may notice that it is only timed now, and train on fewer samples.
        """
        exam = replace(self.how.exam, epochs=self.how.exam.speed_epochs)
        result = self.run(submission.files, epochs=exam.epochs, replicas=self.how.replicas)
        good = every_sample.judge(self.seen(result, exam)).passed
        return between(result.appeared) if good else []


def grade(folder: Path, how: Grading, progress: Progress | None = None) -> Grade:
    """Grade the submission in a folder. Nothing that it does can stop or harm the grader."""
    progress = progress or Progress()
    submission = submissions.read(folder)
    notes = [f"{link} leads out of the folder and was skipped" for link in submission.left_out]
    if PROGRAM not in submission.files:
        return _missing(folder, how, tuple(notes))
    with TemporaryDirectory(prefix="lockstep-assess-", ignore_cleanup_errors=True) as scratch:
        grader = Grader(how, Path(scratch).resolve(), progress)
        progress.say(f"running {PROGRAM} on {how.replicas} ranks for {how.exam.epochs} epochs")
        result = grader.run(
            submission.files, epochs=how.exam.epochs, replicas=how.replicas, oracle=how.oracle
        )
        evidence = grader.seen(result, how.exam)
        # Learners grade often, so do not time a program that fails another check.
        good = all(v.passed is not False for v in judged(evidence).values())
        if how.speed and good:
            evidence = replace(evidence, times=grader.timed(submission, result))
        evidence = replace(evidence, mended=submission.mend())
        advice = _advice(result)
    times = evidence.times
    return Grade(
        exam=how.exam,
        replicas=how.replicas,
        seed=grader.seed,
        verdicts=judged(evidence),
        accuracy=evidence.recounts[how.exam.epochs].accuracy
        if how.exam.epochs in evidence.recounts
        else None,
        gain=times.gain if times is not None and times.complete else None,
        advice=advice,
        notes=(*notes, *evidence.mended),
        on_gpus=grader.on_gpus,
        evidence=evidence,
    )


def _missing(folder: Path, how: Grading, notes: tuple[str, ...]) -> Grade:
    verdicts = {c.name: unjudged("not judged: there is no program") for c in CHECKS}
    verdicts["start"] = failed(f"{PROGRAM} is not in {folder}")
    return Grade(
        exam=how.exam, replicas=how.replicas, seed=how.seed or 0, verdicts=verdicts, notes=notes
    )


def _advice(result: RunResult) -> tuple[str, ...]:
    """Return the doctor's findings in the run and in the source, one line for each bug."""
    from lockstep.doctor.check import check

    work = result.request.work
    found = [(f["code"], Path(f["path"]), f["line"], f["message"]) for f in result.findings]
    seen = {code for code, *_ in found}
    try:
        for f in check([work / PROGRAM]).findings:
            if f.certain and f.rule.code not in seen:
                found.append((f.rule.code, f.path, f.line, f.message))
    except SourceError:
        pass  # the verdict of the first check explains it
    return tuple(
        f"{_near(path, work)}:{line}: {code} {message}" for code, path, line, message in found
    )


def _near(path: Path, work: Path) -> Path:
    try:
        return path.resolve().relative_to(work)
    except ValueError:
        return Path(path.name)
