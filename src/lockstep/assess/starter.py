"""Write a learner's folder: the program, the instructions and the start time."""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from lockstep.assess.exam import EXAMS, Exam, template
from lockstep.errors import AssessError

FORMAT = 1
FILE = "task.json"
LEARNERS_SEED = 0
"""Splits the samples that the learner works with; each grading draws a new seed."""


@dataclass(frozen=True, kw_only=True)
class Task:
    """The content of task.json."""

    data: str
    replicas: int
    minutes: float
    """The time limit."""
    started: float
    """Seconds since 1970."""
    name: str = ""
    """The name of the learner."""
    folder: str | None = None
    """The folder with CIFAR-10, if the cache does not hold it."""
    format: int = FORMAT

    @property
    def exam(self) -> Exam:
        """The terms of the exam, from the grader and not from the file."""
        return EXAMS[self.data]

    def spent(self, now: float) -> float:
        """Return the minutes since the start."""
        return max(0.0, now - self.started) / 60

    def write(self, folder: Path) -> None:
        """Write task.json into the learner's folder, with the terms for the reader."""
        terms = {name: getattr(self.exam, name) for name in ("epochs", "target")}
        content = asdict(self) | terms | {"seed": LEARNERS_SEED}
        (folder / FILE).write_text(json.dumps(content, indent=2) + "\n")


def read_task(folder: Path) -> Task:
    """Read the task of a folder."""
    path = folder / FILE
    if not folder.is_dir():
        raise AssessError(f"{folder} is not a folder. Begin with: lockstep assess start {folder}")
    try:
        found = json.loads(path.read_text())
        task = Task(**{name: found[name] for name in Task.__dataclass_fields__})
        good = (
            task.data in EXAMS
            and isinstance(task.replicas, int)
            and task.replicas > 0
            and task.minutes > 0
            and task.started >= 0
            and isinstance(task.name, str)
        )
    except FileNotFoundError:
        raise AssessError(
            f"{folder} holds no {FILE}, so it is not an assessment. Begin one in a new folder: "
            "lockstep assess start DIR"
        ) from None
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise AssessError(f"{path} is damaged: {type(error).__name__}: {error}.") from None
    if task.format != FORMAT:
        raise AssessError(f"{path} has format {task.format}; this lockstep knows {FORMAT}.")
    if not good:
        raise AssessError(f"{path} is damaged: it contains an impossible value.")
    return task


def start(
    folder: Path,
    *,
    data: str,
    replicas: int,
    minutes: float | None = None,
    name: str = "",
    source: Path | None = None,
) -> Task:
    """Write the task into a new or empty folder."""
    from lockstep.assess.dealt_data import deal

    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise AssessError(f"{folder} is not empty. Name a new or an empty folder.")
    exam = EXAMS[data]
    samples = deal(exam, LEARNERS_SEED, source)
    task = Task(
        data=data,
        replicas=replicas,
        minutes=minutes or exam.minutes,
        started=time.time(),
        name=name,
        folder=None if source is None else str(source.resolve()),
    )
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "train.py").write_text(exam.program)
    (folder / "model.py").write_text(exam.model)
    (folder / "README.md").write_text(instructions(task))
    samples.write(folder / "data.npz")
    task.write(folder)
    return task


def instructions(task: Task) -> str:
    """Return the README.md of a task."""
    exam = task.exam
    facts = {
        "replicas": task.replicas,
        "epochs": exam.epochs,
        "target": exam.target,
        "minutes": f"{task.minutes:g}",
        "seconds": f"{exam.seconds:g}",
        "train": f"{exam.train_samples:,}",
        "test": f"{exam.test_samples:,}",
        "share": f"{exam.share:.0%}",
        "name": {"digits": "handwritten digits", "cifar10": "CIFAR-10"}[exam.data],
        "batch": exam.batch,
    }
    text = template("README.md.txt")
    for name, value in facts.items():
        text = text.replace(f"@{name.upper()}@", str(value))
    if exam.data == "cifar10":
        return text
    # Only the model for CIFAR-10 has batch norm.
    return "\n\n".join(p for p in text.split("\n\n") if not p.startswith("<!-- norm -->"))
