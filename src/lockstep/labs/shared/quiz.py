"""Quiz questions, whose answers follow from measurements on this machine."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace


@dataclass(frozen=True, kw_only=True)
class Question:
    """A question with its choices."""

    text: str
    choices: tuple[str, ...]
    why: str
    """The explanation, with the measured numbers."""
    right: int = 0
    """The index of the right choice."""

    def __post_init__(self) -> None:
        assert 0 <= self.right < len(self.choices), self.text
        assert len(set(self.choices)) == len(self.choices) > 1, self.choices

    @property
    def answer(self) -> str:
        """The right choice."""
        return self.choices[self.right]


def distinct(right: str, others: Sequence[str], count: int = 4) -> tuple[str, ...]:
    """Return up to `count` different choices, the right one first.

    >>> distinct("2x", ["2x", "4x", "4x", "8x"], 3)
    ('2x', '4x', '8x')
    """
    return tuple(dict.fromkeys([right, *others]))[:count]


def shuffled(questions: Sequence[Question], seed: int) -> list[Question]:
    """Return the questions with the choices of each in a random order.

    >>> one = Question(text="2 + 2?", choices=("4", "5", "22"), why="Count.")
    >>> {question.answer for seed in range(9) for question in shuffled([one], seed)}
    {'4'}
    """
    draw, found = random.Random(seed), []
    for question in questions:
        order = list(range(len(question.choices)))
        draw.shuffle(order)
        choices = tuple(question.choices[place] for place in order)
        found.append(replace(question, choices=choices, right=order.index(question.right)))
    return found
