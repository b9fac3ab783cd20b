"""Curves of what a run logged: losses and rates of each optimizer, and series of a program."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from lockstep.report import page

Record = Mapping[str, Any]
MOST_SERIES = 24
"""Most series of a program that the page shows."""
_COLOURS = (page.BLUE, page.GREEN, page.PURPLE, page.RED, page.GREY)
"""The colours of several optimizers; a test loss is orange."""
_PLACE = ("kind", "step", "epoch", "seconds")
_SHOWN = ("samples_per_second", "noise_scale", "noise_low", "noise_high", "global_batch")
"""Series that have a picture elsewhere."""


def points(records: Sequence[Record], x: str, y: str) -> page.Points:
    """Return (x, y) of every record that has both."""
    return [(r[x], r[y]) for r in records if page.is_number(r.get(x)) and y in r]


def names(records: Sequence[Record], first: str) -> list[str]:
    """Return `first` and the names that begin with it: one for each of several optimizers."""
    found = dict.fromkeys(name for r in records if r.get("kind") != "own" for name in r)
    return sorted(name for name in found if name == first or name.startswith(f"{first}_"))


def curves(
    records: Sequence[Record], first: str, only: str = "", colour: str = page.BLUE
) -> list[page.Trace]:
    """Draw a series in its colour under the name `only`, or one for each of several optimizers."""
    found = names(records, first)
    colours = _COLOURS if len(found) > 1 else (colour,)
    return [
        page.curve(spoken(name.removeprefix(first)) or only, points(records, "step", name), own)
        for name, own in zip(found, itertools.cycle(colours), strict=False)
    ]


def own_series(records: Sequence[Record]) -> list[str]:
    """Draw each series that the program noted in its loss or logged itself."""
    shown = {*_PLACE, *_SHOWN, *names(records, "loss"), *names(records, "learning_rate")}
    pictures = {}
    for record in records:
        for name in record if record.get("kind") in ("train", "own") else ():
            kind = str(record["kind"])
            if name not in shown or (kind == "own" and name not in _PLACE):
                pictures[kind, name] = ""
    for kind, name in list(pictures)[:MOST_SERIES]:
        own = [record for record in records if record.get("kind") == kind]
        line = page.curve(spoken(name), points(own, "step", name), page.GREEN)
        title = f"{spoken(name)} in training" if kind == "train" else spoken(name)
        pictures[kind, name] = page.figure(title[:1].upper() + title[1:], [line], x="steps")
    left = len(pictures) - MOST_SERIES
    more = f"{left} more series are in metrics.jsonl." if left > 0 else ""
    return [*filter(None, pictures.values()), *([page.paragraph(more)] if more else [])]


def spoken(name: str) -> str:
    """Return a name in words.

    >>> spoken("_right_real"), spoken("")
    ('right real', '')
    """
    return name.replace("_", " ").strip()
