"""The controls above a picture: sliders, choices and switches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar


@dataclass(frozen=True)
class Control:
    """A list of values, of which the learner picks one."""

    label: str
    values: Sequence[Any]
    value: Any
    """The initial value."""
    shown: Sequence[str] = ()
    """The text of each value on the page; default: the value itself."""
    kind: ClassVar[str]

    def __post_init__(self) -> None:
        assert self.value in self.values, f"{self.label}: {self.value} is none of {self.values}"

    @property
    def at(self) -> int:
        """The index of the initial value."""
        return list(self.values).index(self.value)

    def described(self, name: str) -> dict[str, Any]:
        """Describe the control to the page, which knows indices and texts but no values."""
        texts = list(self.shown) or [_text(value) for value in self.values]
        return {"name": name, "kind": self.kind, "label": self.label, "shown": texts}


class Slider(Control):
    """Ordered values."""

    kind = "slider"


class Choice(Control):
    """Values without an order."""

    kind = "choice"


class Switch(Control):
    """Off or on."""

    kind = "toggle"

    def __init__(self, label: str, on: bool = False) -> None:
        super().__init__(label, (False, True), on)


def steps(low: float, high: float, count: int) -> list[float]:
    """Return `count` values from `low` to `high` with a constant ratio.

    >>> steps(0.001, 1.0, 4)
    [0.001, 0.01, 0.1, 1.0]
    """
    ratio = (high / low) ** (1 / (count - 1))
    return [float(f"{low * ratio**place:.3g}") for place in range(count)]


def _text(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
