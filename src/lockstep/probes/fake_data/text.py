"""A synthetic text: words of a small language, in which some words follow others."""

from __future__ import annotations

import random
from functools import cache
from itertools import product

WORDS = 20_000
_SYLLABLES = [a + b for a, b in product("bdfklmnrstvz", "aeiou")]


@cache
def text(part: str = "train") -> str:
    """Return about 20,000 words, a sentence per line: the same in every process, one text per part.

    >>> text().count(" ") + text().count("\\n") >= WORDS
    True
    >>> set(text("test").split()) <= set(text().split())
    True
    """
    draw = random.Random(part)
    # All parts share their words, so that a model trained on one part fits another.
    language = random.Random(0)
    words = ["".join(language.choices(_SYLLABLES, k=language.randint(1, 3))) for _ in range(200)]
    after = {word: language.sample(words, 8) for word in words}
    lines, written = [], 0
    while written < WORDS:
        line = [draw.choice(words)]
        for _ in range(draw.randint(4, 16)):
            line.append(draw.choice(after[line[-1]]))
        written += len(line) + 1
        lines.append(" ".join([line[0].capitalize(), *line[1:]]) + " .\n")
    return "".join(lines)
