"""What is asked of a program, and what it is given. These are the grader's, never the learner's."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from importlib import resources
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class Exam:
    """The terms of one assessment."""

    data: str
    """`digits` or `cifar10`; names the model too."""
    epochs: int
    target: float
    """Share of right answers on the test set, in two epochs on end."""
    train_samples: int
    test_samples: int
    """Both uneven on purpose: they do not divide by the replicas."""
    batch: int
    """Samples of a step of the program that is given, and its rate."""
    rate: float
    minutes: int
    """That people have, if nobody says otherwise."""
    seconds: float
    """That the program may run, start and all epochs."""
    speed_epochs: int = 8
    """Epochs of the runs that are only timed."""
    share: float = 0.75
    """Of the reference's speed, what is asked for."""

    @property
    def model(self) -> str:
        """The text of model.py."""
        return _text(f"{self.data}.py.txt")

    @cached_property
    def program(self) -> str:
        """The text of the program for one device."""
        return self._filled(_text("train.py.txt"))

    @cached_property
    def reference(self) -> str:
        """The text of a program for several devices that passes."""
        return self._filled(_text("reference.py.txt"))

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


def arguments(data: Path, epochs: int, seed: int, out: Path) -> tuple[str, ...]:
    """What a program is started with."""
    return ("--data", str(data), "--epochs", str(epochs), "--seed", str(seed), "--out", str(out))


def _text(name: str) -> str:
    return resources.files("lockstep.assess").joinpath("templates", name).read_text("utf-8")


def readme() -> str:
    """The instructions, with gaps."""
    return _text("README.md.txt")
