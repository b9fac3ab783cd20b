"""A text that nobody wrote: words of a small language, in which some follow others."""

from __future__ import annotations

import random
from functools import cache
from itertools import product

WORDS = 20_000
_SYLLABLES = [a + b for a, b in product("bdfklmnrstvz", "aeiou")]


@cache
def text(part: str = "train") -> str:
    """Some 20,000 words in sentences, a line each; the same in every process, other for each part.

    >>> text().count(" ") + text().count("\\n") >= WORDS
    True
    >>> set(text("test").split()) <= set(text().split())
    True
    """
    draw = random.Random(part)
    # The words are the same in all parts: what is learned from one holds in another.
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
