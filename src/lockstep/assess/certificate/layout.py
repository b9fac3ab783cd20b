"""The drawing of a certificate, in points on landscape A4; y grows downwards."""

from __future__ import annotations

import math
import unicodedata
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from lockstep.report.page import BLUE, ORANGE

WIDTH, HEIGHT = 842.0, 595.0
MIDDLE = WIDTH / 2
INK, SOFT, LINE, PAPER = "#1c2430", "#5d6776", "#dde2e8", "#fdfdfc"
ROOM = 620.0
"""The width for a name; a long name gets a smaller font."""
SEAL = (706.0, 478.0, 52.0)
"""The centre and radius of the seal."""
PETALS = 40
Point = tuple[float, float]


@dataclass(frozen=True, kw_only=True)
class Text:
    """A line of text."""

    x: float
    y: float
    """The height of the base line."""
    text: str
    size: float
    colour: str = INK
    bold: bool = False
    anchor: str = "middle"
    spacing: float = 0.0
    """The space between letters."""


@dataclass(frozen=True, kw_only=True)
class Path:
    """Points joined by straight lines, filled or outlined."""

    points: tuple[Point, ...]
    closed: bool = True
    fill: str | None = None
    stroke: str | None = None
    width: float = 1.0


@dataclass(frozen=True, kw_only=True)
class Circle:
    """A circle."""

    x: float
    y: float
    radius: float
    fill: str | None = None
    stroke: str | None = None
    width: float = 1.0


Shape = Text | Path | Circle


def drawing(payload: dict[str, Any], key: str) -> list[Shape]:
    """Return all shapes in the order of painting."""
    return [*_frame(), *_words(payload), *_facts(payload), *_foot(payload, key), *_seal(payload)]


def _frame() -> list[Shape]:
    return [
        _box(0, 0, WIDTH, HEIGHT, fill=PAPER),
        _box(26, 26, WIDTH - 52, HEIGHT - 52, stroke=LINE),
        _box(32, 32, WIDTH - 64, HEIGHT - 64, stroke=BLUE, line=0.6),
    ]


def _words(payload: dict[str, Any]) -> list[Shape]:
    name = payload["name"]
    done = (
        f"has taken a training program from one device to {payload['replicas']} replicas "
        "and kept the training of one."
    )
    return [
        Text(x=MIDDLE, y=86, text="LOCKSTEP", size=11, colour=SOFT, spacing=5),
        Text(x=MIDDLE, y=134, text="Certificate of competency", size=34),
        Text(x=MIDDLE, y=162, text="Data-parallel training with PyTorch", size=14, colour=BLUE),
        Text(x=MIDDLE, y=242, text=name, size=min(42.0, ROOM / ems(name)), bold=True),
        Path(points=((MIDDLE - 150, 264), (MIDDLE + 150, 264)), closed=False, stroke=LINE),
        Text(x=MIDDLE, y=292, text=done, size=13, colour=SOFT),
    ]


def _facts(payload: dict[str, Any]) -> list[Shape]:
    late = "" if payload["in_time"] else ", late"
    facts = [
        (f"{payload['accuracy']:.4f}", f"accuracy; {payload['target']} required"),
        (f"{payload['gain']:.2f}x", f"as fast, on {payload['replicas']} replicas"),
        (f"{payload['score']} of {payload['of']}", "checks passed"),
        (f"{payload['minutes']} min", f"of {payload['limit']:g} allowed{late}"),
    ]
    shapes: list[Shape] = []
    for number, (value, meaning) in enumerate(facts):
        x = 136 + number * 190
        colour = ORANGE if late and number == 3 else INK
        shapes.append(Text(x=x, y=352, text=value, size=22, colour=colour, bold=True))
        shapes.append(Text(x=x, y=371, text=meaning, size=10, colour=SOFT))
        if number:
            shapes.append(Path(points=((x - 95, 332), (x - 95, 376)), closed=False, stroke=LINE))
    return shapes


def _foot(payload: dict[str, Any], key: str) -> list[Shape]:
    graded, expires = (datetime.fromisoformat(payload[name]) for name in ("graded", "expires"))
    by = "an instructor" if payload["by"] == "instructor" else "the learner (self-graded)"
    rows = [
        ("Graded", f"{graded.day} {graded:%B %Y}, by {by}"),
        ("Valid until", f"{expires.day} {expires:%B %Y}"),
        ("Task", f"{payload['data']}, {payload['replicas']} replicas"),
        ("Machine", payload["machine"]),
        ("Key", f"{key} · serial {payload['serial']} · lockstep {payload['lockstep']}"),
    ]
    shapes: list[Shape] = []
    for number, (label, value) in enumerate(rows):
        y = 446 + number * 19
        shapes.append(Text(x=84, y=y, text=label, size=10, colour=SOFT, anchor="start"))
        shapes.append(Text(x=154, y=y, text=value, size=10, anchor="start"))
    return shapes


def _seal(payload: dict[str, Any]) -> list[Shape]:
    """Draw a rosette around four bars; without an instructor, draw only its outline."""
    x, y, radius = SEAL
    taught = payload["by"] == "instructor"
    edge = tuple(
        (
            x + (radius + 2.4 * math.cos(PETALS * angle)) * math.cos(angle),
            y + (radius + 2.4 * math.cos(PETALS * angle)) * math.sin(angle),
        )
        for angle in (2 * math.pi * n / (8 * PETALS) for n in range(8 * PETALS))
    )
    pale = PAPER if taught else BLUE
    shapes: list[Shape] = [
        Path(points=edge, fill=BLUE if taught else None, stroke=BLUE, width=1.2),
        Circle(x=x, y=y, radius=radius - 7, stroke=pale, width=0.9),
    ]
    for number in range(4):
        left, top = x - 24 + 12.5 * number, y - 4 - 6.5 * number
        shapes.append(_box(left, top, 8, 10 + 6.5 * number, fill=pale))
    shapes.append(
        Path(points=((x - 30, y + 9), (x + 30, y + 9)), closed=False, stroke=pale, width=1.2)
    )
    word, size = ("PASSED", 8.0) if taught else ("SELF-GRADED", 7.0)
    shapes.append(Text(x=x, y=y + 25, text=word, size=size, colour=pale, bold=True, spacing=0.6))
    return shapes


def _box(
    x: float,
    y: float,
    width: float,
    height: float,
    fill: str | None = None,
    stroke: str | None = None,
    line: float = 1.0,
) -> Path:
    corners = ((x, y), (x + width, y), (x + width, y + height), (x, y + height))
    return Path(points=corners, fill=fill, stroke=stroke, width=line)


def ems(text: str) -> float:
    """Estimate the width of a text in units of its font size.

    >>> ems("李") > ems("i")
    True
    """
    return sum(1.15 if c in "WM@%" else _em(c) for c in text)


def _em(letter: str) -> float:
    if unicodedata.east_asian_width(letter) in "WF":
        return 1.0
    return 0.85 if letter.isupper() else 0.65
