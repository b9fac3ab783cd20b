"""The terms of an exam and the files it hands out. The grader never reads them from the learner."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from importlib import resources


@dataclass(frozen=True, kw_only=True)
class Exam:
    """The terms of one assessment."""

    data: str
    """`digits` or `cifar10`; also the name of the model."""
    epochs: int
    target: float
    """The accuracy on the test set to reach in two consecutive epochs."""
    train_samples: int
    test_samples: int
    """Both numbers of samples are odd on purpose, so the replicas cannot share them equally."""
    batch: int
    """The samples per step of the given program, and its learning rate."""
    rate: float
    minutes: int
    """The default time limit for the learner."""
    seconds: float
    """How long the program may run, from start to last epoch."""
    speed_epochs: int = 8
    """The epochs of runs that are only timed."""
    share: float = 0.75
    """The share of the reference's speed that a submission must reach."""

    @property
    def model(self) -> str:
        """The source of model.py."""
        return template(f"{self.data}.py.txt")

    @cached_property
    def program(self) -> str:
        """The source of the program for one device."""
        return self._filled(template("train.py.txt"))

    @cached_property
    def reference(self) -> str:
        """The source of a program for several devices that passes."""
        return self._filled(template("reference.py.txt"))

    def _filled(self, text: str) -> str:
        for name in ("epochs", "batch", "rate"):
            text = text.replace(f"@{name.upper()}@", str(getattr(self, name)))
        return text


EXAMS = {
    "digits": Exam(
        data="digits",
        epochs=10,
        target=0.95,
        train_samples=1437,
        test_samples=359,
        batch=64,
        rate=0.05,
        minutes=90,
        seconds=180.0,
    ),
    "cifar10": Exam(
        data="cifar10",
        epochs=8,
        target=0.75,
        train_samples=49_999,
        test_samples=9_997,
        batch=128,
        rate=0.1,
        minutes=120,
        seconds=1800.0,
        speed_epochs=3,
    ),
}


def template(name: str) -> str:
    """Read a file of `templates/`."""
    return resources.files("lockstep.assess").joinpath("templates", name).read_text("utf-8")
